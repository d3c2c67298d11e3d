"""Progress of a run with several machines: of the one that has written it last."""

from __future__ import annotations

from typing import Any

from orchestrator.core.protocol.newest import combine_tasks
from orchestrator.core.protocol.report import Checkpoint, Command, MachineReport, RunState, TaskReport

RUNNING = Command(state=RunState.RUNNING)


def report(rank: int, *, now: float, **fields: Any) -> MachineReport:
    usual: dict[str, Any] = {
        "machine": f"r-m{rank + 1}",
        "run": "r",
        "created": 0.0,
        "deadline_at": 9e9,
        "usd_per_hour": "1",
    }
    return MachineReport(now=now, **usual | {"command": RUNNING} | fields)


def test_progress_and_checkpoint_are_of_the_machine_that_wrote_last() -> None:
    """Rank 0 of torchrun has moved to the second machine, whose clock is an hour behind; the state is the head's."""
    old, new = {"step": 3}, {"step": 8}
    head = report(
        0, now=10_000.0, progress=old, progress_at=9_900.0, checkpoint=Checkpoint(name="3", bytes=1, written=9_990.0)
    )
    other = report(
        1,
        now=6_400.0,
        progress=new,
        progress_at=6_398.0,
        checkpoint=Checkpoint(name="2", bytes=1, written=6_380.0),
        command=Command(state=RunState.FAILED),
    )
    task = combine_tasks((head, other))[""]
    assert (task.command.state, task.progress, task.progress_at) == (RunState.RUNNING, new, 9_998.0)
    assert task.checkpoint == head.checkpoint
    assert combine_tasks((head, report(1, now=6_400.0)))[""].progress == old
    moved = combine_tasks((report(0, now=10_000.0), other))[""]
    assert moved.checkpoint == Checkpoint(name="2", bytes=1, written=9_980.0)


def test_an_agent_of_an_earlier_version_does_not_know_when_progress_was_written() -> None:
    """The head's is preferred; another's is better than none."""
    head, other = report(0, now=10.0, progress={"step": 1}), report(1, now=10.0, progress={"step": 2})
    assert combine_tasks((head, other))[""].progress == {"step": 1}
    assert combine_tasks((report(0, now=10.0), other))[""].progress == {"step": 2}


def test_each_task_has_its_own_machine() -> None:
    """A machine without the task is left out; without any report there are no tasks."""
    fit = {"fit": TaskReport(command=RUNNING, progress={"step": 1}, progress_at=1.0), "tune": TaskReport()}
    later = {"tune": TaskReport(command=RUNNING, progress={"step": 5}, progress_at=9.0)}
    found = combine_tasks((report(0, now=10.0, tasks=fit), report(1, now=10.0, tasks=later)))
    assert {name: task.progress for name, task in found.items()} == {"fit": {"step": 1}, "tune": {"step": 5}}
    assert found["tune"].command.state is RunState.IDLE
    assert combine_tasks(()) == {}
