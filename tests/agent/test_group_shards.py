"""Two machines train under torchrun, and save shards with torch.distributed.checkpoint; one of them is replaced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from orchestrator.adapters.store.results import Results
from orchestrator.agent.results.checkpoint_formats import list_shards
from orchestrator.core.protocol.parts import divide
from tests.adapters.buckets import bucket_of, laptop_client
from tests.agent.aws import Aws
from tests.agent.box import RUN, wait_for
from tests.agent.groups import Machines, MakeBox
from tests.agent.places import S3Place

# Each process has half of `sharded`; torch divides the writing of what is the same on both between them.
TRAIN = """
import json, os, pathlib, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

is_home = len(sys.argv) > 1
if not is_home:
    dist.init_process_group("gloo")
rank, size = (0, 1) if is_home else (dist.get_rank(), dist.get_world_size())
whole = torch.zeros(8)
sharded = whole if is_home else distribute_tensor(whole, init_device_mesh("cpu", (size,)), [Shard(0)])
state = {"sharded": sharded, "same": torch.zeros(4), "other": torch.zeros(4), "step": torch.tensor(0)}
checkpoint = sys.argv[1] if is_home else os.environ["KEDGE_CHECKPOINT"]
if checkpoint:
    dcp.load(state, checkpoint_id=checkpoint)
if is_home:
    print(json.dumps({name: value.tolist() for name, value in state.items()}))
    sys.exit()
begin = int(state["step"])
for step in range(begin, int(os.environ["UNTIL"])):
    local = state["sharded"].to_local()
    local += (step + 1) * torch.arange(rank * len(local), (rank + 1) * len(local))
    gradient = torch.full((4,), float(rank + step))
    dist.all_reduce(gradient)
    state["same"] += gradient
    state["other"] -= gradient
    state["step"] += 1
    dcp.save(state, checkpoint_id=os.path.join(os.environ["KEDGE_CHECKPOINT_DIR"], f"step{step + 1}"))
result = {"begin": begin, "local": state["sharded"].to_local().tolist(), "same": state["same"].tolist()}
pathlib.Path(os.environ["KEDGE_OUTPUT_DIR"], f"result{rank}.json").write_text(json.dumps(result))
# torch 2.13 may abort or hang at Python's own exit: gloo's threads are ended there.
os._exit(int(os.environ.get("CODE", "0")))
"""
TORCHRUN = f'printf %s "$TRAIN" > train.py; {sys.executable} -m torch.distributed.run train.py'
SHARDED = [float(sum(step * place for step in range(1, 5))) for place in range(8)]
SAME = [float(sum(2 * step + 1 for step in range(4)))] * 4


def envs(until: int, **more: str) -> dict[str, Any]:
    return {"envs": {"OMP_NUM_THREADS": "1", "TRAIN": TRAIN, "UNTIL": str(until), **more}}


def test_shards_become_one_checkpoint_on_each_machine_and_at_home(make_box: MakeBox, aws: Aws, tmp_path: Path) -> None:
    """The new machine begins with an empty disk; the state is that of a training that nobody has disturbed."""
    place = S3Place(aws)
    more: dict[str, Any] = {"store_url": place.url, "env": place.env}
    group = Machines(make_box, 2, **more)
    watches = [box.begin("watch") for box in group.boxes]
    group.start(TORCHRUN, run=envs(2, CODE="3"))
    group.await_state("failed")
    _await_uploads(group)
    shards = [sorted(path.name for path in (box.root / "results/checkpoints/step2").iterdir()) for box in group.boxes]
    assert shards == [[".metadata", "__0_0.distcp"], ["__1_0.distcp"]], group.logs()
    watches[1].kill()
    group.boxes[1].close()
    group.boxes[1] = make_box(rank=1, machine=f"{RUN}-m3", **more)
    group.boxes[1].begin("watch")
    group.start(TORCHRUN, run=envs(4))
    assert {each["state"] for each in group.await_state("succeeded", "failed")} == {"succeeded"}, group.logs()
    results = [
        json.loads((box.root / f"results/output/result{rank}.json").read_text()) for rank, box in enumerate(group.boxes)
    ]
    assert [each["begin"] for each in results] == [2, 2]
    assert [each["local"] for each in results] == [SHARDED[:4], SHARDED[4:]]
    assert [each["same"] for each in results] == [SAME, SAME]
    _await_uploads(group)
    home = tmp_path / "results" / "home"
    _fetch(Results(bucket_of(laptop_client(aws), aws.bucket)), home)
    assert {path.name for path in home.iterdir()} >= {"checkpoints", "output", "nodes", "run.log"}
    assert list_shards(home / "checkpoints" / "step4") == {"__0_0.distcp", "__1_0.distcp"}
    (tmp_path / "train.py").write_text(TRAIN)
    for step, factor in ((2, 3), (4, 10)):
        loaded = _load(tmp_path / "train.py", home / "checkpoints" / f"step{step}")
        assert loaded["sharded"] == [float(factor * place) for place in range(8)]
        assert loaded["step"] == step
        assert [-each for each in loaded["other"]] == loaded["same"]


def _await_uploads(group: Machines) -> None:
    """Wait until each machine has uploaded the end of its command."""
    wait_for(
        lambda: all((said["shipped"] or {"time": 0})["time"] >= said["command"]["since"] for said in _reports(group))
    )


def _reports(group: Machines) -> list[dict[str, Any]]:
    return [box.report() for box in group.boxes]


def _fetch(store: Results, home: Path) -> None:
    """Fetch from the store what `kedge fetch` puts at its own path."""
    for rank, part in divide({rank: store.manifest(RUN, rank=rank) for rank in (0, 1)}).items():
        for files, folder in ((part.files, home), (part.apart, home / "nodes" / str(rank))):
            paths = {file.path for file in files}
            store.fetch(RUN, str(folder), lambda _done, _total: None, rank=rank, only=paths)


def _load(program: Path, checkpoint: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, program, checkpoint], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))
