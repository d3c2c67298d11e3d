"""Machines with addresses of their own train a small model together, under torchrun, without any option for it."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import psutil
import pytest

from tests.agent.box import wait_for
from tests.agent.groups import Machines, MakeBox

# Four processes share the cores of this computer: each uses one thread, and imports torch once.
TRAIN = """
import json, os, pathlib, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
place = pathlib.Path(os.environ["KEDGE_CHECKPOINT_DIR"], "last.pt")
begin, weight = torch.load(place) if place.exists() else (0, torch.zeros(4))
begin = torch.tensor([begin]); dist.broadcast(begin, src=0); dist.broadcast(weight, src=0)
losses = []
for step in range(int(begin), 6):
    x = torch.arange(4.0) + rank + step
    error = x @ weight - 1
    losses.append(float(error ** 2))
    gradient = 2 * error * x
    dist.all_reduce(gradient)
    weight = weight - 0.001 * gradient / size
    if rank == 0:
        torch.save((step + 1, weight), f"{place}.part"); os.replace(f"{place}.part", place)
    while step == 2 and os.environ.get("PAUSE") and not int(begin):
        print("paused", flush=True); time.sleep(0.2)
total = torch.tensor(losses[-1]); dist.all_reduce(total)
result = {"rank": rank, "size": size, "begin": int(begin), "loss": float(total), "weight": weight.tolist()}
pathlib.Path(os.environ["KEDGE_OUTPUT_DIR"], "result.json").write_text(json.dumps(result))
# torch 2.13 may abort or hang at Python's own exit: gloo's threads are ended there.
os._exit(0)
"""
ENVS = {"OMP_NUM_THREADS": "1", "TRAIN": TRAIN}
TORCHRUN = f'printf %s "$TRAIN" > train.py; {sys.executable} -m torch.distributed.run train.py'


def results(group: Machines) -> list[dict[str, Any]]:
    texts = [(box.root / "results/output/result.json").read_text() for box in group.boxes]
    return [dict(json.loads(text)) for text in texts]


def undisturbed(size: int) -> list[float]:
    """The weights after six steps, computed in one process."""
    weight = [0.0] * 4
    for step in range(6):
        gradient = [0.0] * 4
        for rank in range(size):
            x = [float(each + rank + step) for each in range(4)]
            error = sum(a * b for a, b in zip(x, weight, strict=True)) - 1
            gradient = [g + 2 * error * a for g, a in zip(gradient, x, strict=True)]
        weight = [w - 0.001 * g / size for w, g in zip(weight, gradient, strict=True)]
    return weight


def test_machines_train_together(make_box: MakeBox) -> None:
    """Each has its own rank, the head's processes the first ones; all end with the same weights."""
    size = 4
    group = Machines(make_box, size)
    group.start(TORCHRUN, run={"envs": ENVS})
    assert {each["state"] for each in group.await_state("succeeded", "failed")} == {"succeeded"}, group.logs()
    found = results(group)
    assert [(each["rank"], each["size"]) for each in found] == [(rank, size) for rank in range(size)]
    assert all(each["weight"] == pytest.approx(undisturbed(size), abs=1e-5) for each in found)


def test_a_killed_process_costs_the_steps_since_the_last_checkpoint(make_box: MakeBox) -> None:
    """The processes of all machines begin again from it, and end as undisturbed ones do."""
    group = Machines(make_box, 2)
    # The others learn of the checkpoint from the head, which wrote it.
    group.start(TORCHRUN, run={"envs": {**ENVS, "PAUSE": "1"}}, restarts=1)
    wait_for(lambda: all(" paused\n" in box.log() for box in group.boxes))
    (victim,) = [
        pid
        for pid in group.boxes[1].processes()
        if psutil.Process(pid).cmdline()[-1:] == ["train.py"]
        and "torch.distributed.run" not in psutil.Process(pid).cmdline()
    ]
    os.kill(victim, signal.SIGKILL)
    over = group.await_state("succeeded", "failed")
    assert [(each["state"], each["attempt"]) for each in over] == [("succeeded", 2)] * 2, group.logs()
    found = results(group)
    assert [each["begin"] for each in found] == [3, 3]
    assert all(each["weight"] == pytest.approx(undisturbed(2), abs=1e-5) for each in found)


def test_an_elastic_group_meets_at_the_heads_store(make_box: MakeBox) -> None:
    """With torchrun's c10d rendezvous, whose ranks may be in another order."""
    group = Machines(make_box, 2)
    group.start(TORCHRUN, run={"envs": ENVS, "elastic": [1, 2]})
    assert {each["state"] for each in group.await_state("succeeded", "failed")} == {"succeeded"}, group.logs()
    assert sorted((each["rank"], each["size"]) for each in results(group)) == [(0, 2), (1, 2)]
