"""Machines of a group that are lost: the others wait for a replacement, go on without it, or say why they can't."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.agent.base.layout import Layout
from tests.agent.box import RUN, Box, wait_for
from tests.agent.groups import TOKEN, Machines, MakeBox, addresses
from tests.agent.several import UNTIL_TOLD, task

HELD = 'echo "up $NODE_RANK of $NNODES at $KEDGE_CHECKPOINT"; ' + UNTIL_TOLD


def lose(box: Box) -> None:
    """End all processes of a machine at once, as the loss of the machine does."""

    def kill() -> bool:
        found = box.processes()
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_for(kill)


def test_machines_of_a_recovered_run_wait_for_a_replacement_although_no_restart_is_left(make_box: MakeBox) -> None:
    """It has another address. All start again together, once those that are left were stopped."""
    group = Machines(make_box, 3)
    group.start(HELD, run={"recovers": True})
    wait_for(lambda: all(" up " in box.log() for box in group.boxes))
    lose(group.boxes[2])
    waiting = f"waiting for node 2 (127.0.0.4) at 127.0.0.2, port {group.port}"
    wait_for(lambda: waiting in group.boxes[0].report()["command"]["reason"])
    head, other, _ = group.boxes
    assert "ending this attempt: lost a machine: the connection to node 2 (127.0.0.4) is lost" in head.log()
    assert [box.report()["command"]["attempt"] for box in (head, other)] == [2, 2]
    assert "attempt 2 of 2" not in head.log()
    for box in (head, other):
        box.call("stop", "--reason", "restarting")
    group.boxes[2] = make_box(rank=2, machine="digits-1a2b-m4")
    group.addresses[2] = addresses(4)[3]
    group.start(HELD, run={"recovers": True})
    wait_for(
        lambda: all(f" up {rank} of 3" in box.log().rpartition("stopped")[2] for rank, box in enumerate(group.boxes))
    )
    for box in group.boxes:
        box.call("notice", "now")
    group.await_state("succeeded")


def test_a_machine_that_does_not_come_back_fails_the_run_as_a_loss(make_box: MakeBox) -> None:
    """The reason tells the laptop that the command isn't to blame. Here the others wait for a few seconds."""
    group = Machines(make_box, 3, deadline=time.time() + 120.0, created=time.time() + 104.0)
    group.start(HELD, restarts=1)
    wait_for(lambda: all(" up " in box.log() for box in group.boxes))
    lose(group.boxes[1])
    head, last = (box.await_state("failed") for box in (group.boxes[0], group.boxes[2]))
    said = f"lost a machine: node 1 (127.0.0.3) did not come to 127.0.0.2, port {group.port} in 4 s"
    assert head["reason"].startswith(said)
    assert said in last["reason"]


def test_machines_wait_for_a_head_that_is_lost(make_box: MakeBox, tmp_path: Path) -> None:
    """Without a replacement, they fail with a clear reason, and end: the store says for ever that the head runs."""
    ended = tmp_path / "ended"
    here: dict[str, Any] = {"store_url": (tmp_path / "store").as_uri(), "linger": 0.3}
    here |= {"end_command": ["touch", str(ended)], "deadline": time.time() + 120.0, "created": time.time() + 104.0}
    group = Machines(make_box, 2, **here)
    place = tmp_path / "store" / RUN / "manifest.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"time": time.time() + 200, "command": {"state": "running"}, "files": []}))
    group.start(HELD, restarts=1)
    group.boxes[1].begin("watch")
    wait_for(lambda: all(" up " in box.log() for box in group.boxes))
    lose(group.boxes[0])
    over = group.boxes[1].await_state("failed")
    wait_for(ended.exists)
    assert over["reason"].startswith(
        f"lost a machine: the head did not come back to 127.0.0.2, port {group.port} in 4 s"
    )


def test_a_failure_of_the_command_is_not_taken_for_a_loss(make_box: MakeBox) -> None:
    """A recovered run isn't given more attempts for it."""
    group = Machines(make_box, 2)
    group.start('[ "$NODE_RANK" = 0 ] || exit 3; sleep 1000', run={"recovers": True})
    head, other = group.await_state("failed")
    assert head["reason"].startswith("node 1 (127.0.0.3) has failed: exit code 3")
    assert (head["attempt"], other["attempt"]) == (1, 1)


# Each process uses one thread. After a loss, torchrun may give rank 0 to any machine.
TRAIN = """
import json, os, pathlib, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
place = pathlib.Path(os.environ["KEDGE_CHECKPOINT_DIR"], "last.json")
begin, weight = json.loads(place.read_text()) if place.exists() else (0, 0.0)
newest = [None] * size
dist.all_gather_object(newest, (begin, weight))
begin, weight = max(newest)
print(f"begins at {begin} as {rank} of {size}", flush=True)
for step in range(begin, 1000):
    gradient = torch.tensor(float(step))
    dist.all_reduce(gradient)
    weight += float(gradient) / size
    pathlib.Path(f"{place}.part").write_text(json.dumps([step + 1, weight])); os.replace(f"{place}.part", place)
    done = torch.tensor(float(os.path.exists(os.environ["KEDGE_NOTICE_FILE"]))); dist.all_reduce(done)
    if float(done):
        break
    time.sleep(0.02)
print(f"ends after {step + 1}: {weight == sum(range(step + 1))}", flush=True)
# torch 2.13 may abort or hang at Python's own exit: gloo's threads are ended there.
os._exit(0)
"""
# By default, torchrun waits half a minute for more machines than it needs.
ELASTIC = (
    'printf %s "$TRAIN" > train.py; '
    f'PET_RDZV_CONF="$PET_RDZV_CONF,last_call_timeout=2" {sys.executable} -m torch.distributed.run train.py'
)


def test_an_elastic_group_trains_on_without_a_lost_machine_and_not_below_its_least(make_box: MakeBox) -> None:
    """From the newest checkpoint, on all that are left. With too few, the head waits, and says for whom."""
    group = Machines(make_box, 3)
    group.start(ELASTIC, run={"envs": {"OMP_NUM_THREADS": "1", "TRAIN": TRAIN}, "elastic": [2, 3], "recovers": True})
    wait_for(lambda: all(" of 3\n" in box.log() and step_of(box) > 3 for box in group.boxes))
    lose(group.boxes[2])
    head, other, _ = group.boxes
    await_logs(group, " of 2\n", 0, 1)
    assert "the connection to node 2 (127.0.0.4) is lost" in head.log()
    assert "begins at 0 as" not in head.log().rpartition("is lost")[2]
    assert [box.report()["command"]["attempt"] for box in (head, other)] == [1, 1]
    before = step_of(head)
    wait_for(lambda: step_of(head) > before + 3)
    lose(other)
    wait_for(lambda: "waiting for node 1 (127.0.0.3), node 2 (127.0.0.4)" in head.report()["command"]["reason"])
    assert "ending this attempt: lost a machine: the connection to node 1 (127.0.0.3) is lost" in head.log()


def test_the_head_of_an_elastic_group_stays_until_all_are_done(make_box: MakeBox) -> None:
    """The one with rank 0, which writes the exports, may be any machine."""
    group = Machines(make_box, 2)
    head, other = group.boxes
    state = Layout(head.root).task("").state_file
    exports = f'{UNTIL_TOLD}; sleep 2; cat "$HEAD_STATE"'
    envs = {"HEAD_STATE": str(state)}
    group.start(f'[ "$KEDGE_NODE_RANK" = 0 ] || {{ {exports}; }}', run={"elastic": [1, 2], "envs": envs})
    wait_for(lambda: head.report()["command"]["reason"] == "done; waiting for node 1 (127.0.0.3)")
    since = head.report()["command"]["since"]
    other.call("notice", "now")
    group.await_state("succeeded")
    assert '"state": "running"' in other.log()
    # The state isn't written again and again meanwhile.
    assert f'"since": {since}' in other.log()


def test_an_elastic_group_waits_for_a_machine_that_its_head_had_no_time_for(make_box: MakeBox) -> None:
    """Here, a stranger kept the head busy: the machine comes again, and doesn't start on its own."""
    group = Machines(make_box, 2)
    head, other = group.boxes
    run = {"elastic": [1, 2]}
    group.start("true", 0, run=run)
    wait_for(lambda: "waiting for node 1" in head.report()["command"]["reason"])
    with socket.create_connection(("127.0.0.2", group.port)), socket.create_connection(("127.0.0.2", group.port)):
        group.start("true", 1, run=run)
        wait_for(lambda: "the head at 127.0.0.2" in other.log())
        group.await_state("succeeded")
    assert "the network of node 1" in head.log()


def await_logs(group: Machines, text: str, *ranks: int) -> None:
    """Wait until the logs of these machines have a text; torchrun takes half a minute to notice a loss."""
    try:
        wait_for(lambda: all(text in group.boxes[rank].log() for rank in ranks), timeout=150)
    except AssertionError as err:
        raise AssertionError(group.logs()) from err


def step_of(box: Box) -> int:
    """How many steps its checkpoint has."""
    place = box.root / "results/checkpoints/last.json"
    return int(json.loads(place.read_text())[0]) if place.exists() else 0


def test_a_task_that_never_starts_on_the_head_is_not_waited_for(make_box: MakeBox) -> None:
    """Only the head knows that the task before has failed, which it alone runs."""
    group = Machines(make_box, 2)
    head, other = group.boxes
    head.begin("watch")
    config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "addresses": group.addresses, "token": TOKEN}
    train = task("train", "true", port=group.port)
    other.ask("start", stdin=json.dumps({**config, "tasks": [train]}).encode())
    wait_for(lambda: "waiting for the head" in other.report()["tasks"]["train"]["command"]["reason"])
    tasks = [task("prep", "exit 3"), {**train, "after": "prep"}]
    head.ask("start", stdin=json.dumps({**config, "tasks": tasks}).encode())
    head.await_state("failed")
    other.await_state("failed")
    assert "prep has failed" in other.report()["tasks"]["train"]["command"]["reason"]
