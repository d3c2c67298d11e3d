"""Several machines go through a run's modes together: none begins the next one before all have finished the present."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.agent.box import RUN, Box, wait_for
from tests.agent.groups import Machines, MakeBox
from tests.agent.several import UNTIL_TOLD, task
from tests.support.ports import free_port

TOKEN = "5ecret-of-the-run"
FIRST = 'echo "validate $NODE_RANK"; '
SECOND = 'echo "fast $NODE_RANK of $NNODES, resume <$KEDGE_RESUME>"'


def start(
    group: Machines,
    first: str,
    *,
    second: str = SECOND,
    port: int | None = None,
    others: Mapping[str, Any] = MappingProxyType({}),
    **own: Any,
) -> None:
    """Start a mode on each machine, which another one follows; the first mode's machines don't wait for each other."""
    modes_port = free_port() if port is None else port
    shared = {"run": RUN, "job": "digits", "setup": "", "addresses": group.addresses, "modes_port": modes_port}
    shared |= {"token": TOKEN}
    one = {**shared, "mode": "validate", "tasks": [task("", first, grace=2.0, **own)]}
    two = {**shared, "mode": "fast", "sequence": 1, "tasks": [task("", second, port=group.port, grace=2.0)]}
    for rank, box in enumerate(group.boxes):
        ranked = {**one, "envs": {"NODE_RANK": str(rank)}, **(others if rank else {})}
        box.ask("start", stdin=json.dumps({**ranked, "then": [two]}).encode())


def shown(box: Box) -> tuple[int, str, str]:
    report = box.report()
    return report["sequence"], report["command"]["state"], report["command"]["reason"]


def await_shown(box: Box, sequence: int, state: str) -> str:
    return str(wait_for(lambda: found if (found := shown(box))[:2] == (sequence, state) else None)[2])


def log(box: Box) -> str:
    path = box.root / "results/2-fast/run.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("last", [0, 2])
def test_all_machines_begin_the_next_mode_when_all_have_finished(make_box: MakeBox, last: int) -> None:
    """Whichever is last; who waits says for whom, and is live meanwhile. A watch that was killed asks again."""
    group = Machines(make_box, 3)
    watches = [box.begin("watch") for box in group.boxes]
    start(group, FIRST + f'[ "$NODE_RANK" != {last} ] || {{ {UNTIL_TOLD}; }}')
    done = [box for rank, box in enumerate(group.boxes) if rank != last]
    for box in done:
        assert "mode fast starts" in await_shown(box, 0, "waiting")
    if last:
        reason = f"mode fast starts once node {last} (127.0.0.{last + 2}) has finished"
        wait_for(lambda: shown(group.boxes[0])[2] == reason)
    else:
        os.kill(watches[1].pid, signal.SIGKILL)
        group.boxes[1].begin("watch")
    # More than a round of each watch.
    time.sleep(3)
    assert all(shown(box)[:2] == (0, "waiting") for box in done)
    group.boxes[last].call("notice", "now")
    for rank, box in enumerate(group.boxes):
        await_shown(box, 1, "succeeded")
        assert f" fast {rank} of 3, resume <>\n" in log(box)


@pytest.mark.parametrize("failing", [0, 1])
def test_if_one_has_failed_none_goes_on(make_box: MakeBox, failing: int) -> None:
    """The run has failed on all of them, and the reason names the machine: nobody waits until the deadline."""
    group = Machines(make_box, 2)
    for box in group.boxes:
        box.begin("watch")
    start(group, FIRST + f'[ "$NODE_RANK" != {failing} ] || exit 3', restarts=0)
    name = ("the head", "node 1 (127.0.0.3)")[failing]
    reasons = [await_shown(box, 0, "failed") for box in group.boxes]
    assert reasons[1 - failing] == f"{name} has failed: exit code 3, attempt 1 of 1"
    assert reasons[failing] == "exit code 3, attempt 1 of 1"
    assert not [box for box in group.boxes if log(box)]


def test_a_machine_that_was_stopped_and_started_again_is_waited_for(make_box: MakeBox) -> None:
    """Meanwhile, the run counts as stopped."""
    group = Machines(make_box, 2)
    for box in group.boxes:
        box.begin("watch")
    port = free_port()
    start(group, FIRST + f'[ "$NODE_RANK" = 0 ] || {{ {UNTIL_TOLD}; }}', port=port)
    head, other = group.boxes
    await_shown(head, 0, "waiting")
    other.call("stop")
    assert await_shown(head, 0, "stopped") == "node 1 (127.0.0.3) has been stopped: asked for"
    start(group, "true", port=port)
    for box in group.boxes:
        await_shown(box, 1, "succeeded")


def test_a_machine_that_never_answers_ends_the_wait(make_box: MakeBox) -> None:
    """After a quarter of its lifetime, 15 minutes at most, because machines that wait cost money.

    One that doesn't know the run's token isn't believed.
    """
    group = Machines(make_box, 2, created=time.time(), deadline=time.time() + 16)
    head, other = group.boxes
    head.begin("watch")
    start(group, "true", others={"token": "another"})
    stranger = other.begin("watch")
    assert await_shown(head, 0, "failed") == "node 1 (127.0.0.3) has not been heard of for 4 s"
    stranger.kill()
    head.close()
    other.begin("watch")
    assert "the head (127.0.0.2) has not answered for 4 s" in await_shown(other, 0, "failed")
