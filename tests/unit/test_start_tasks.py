"""`kedge start --task`: which tasks of a run's machine are started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.actions import StartCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.plan import Observed
from orchestrator.core.planning.restart import plan_start_again
from orchestrator.core.protocol.report import Command, MachineReport, RunState, TaskReport
from orchestrator.core.task import Task, choose_tasks
from tests.support.fakes import M1, MACHINE, NOW, RUN

STATES = {"a": RunState.SUCCEEDED, "b": RunState.STOPPED, "c": RunState.RUNNING, "d": RunState.FAILED}
JOB = Job(name="j", tasks=tuple(Task(name=name, run=name) for name in STATES))
REPORT = MachineReport(
    machine=M1,
    run=RUN,
    now=0,
    created=0,
    deadline_at=0,
    usd_per_hour="1",
    tasks={name: TaskReport(command=Command(state=state)) for name, state in STATES.items()},
)
OBSERVED = Observed(now=NOW, offers=(), machines=(replace(MACHINE),), report=REPORT, revision=0)


@pytest.mark.parametrize(
    ("names", "started"),
    [((), ("b", "d")), (("b",), ("b",)), (("d", "a"), ("a", "d")), (("c",), None), (("c", "b"), ("b",))],
)
def test_named_tasks_are_started_unless_they_run(names: tuple[str, ...], started: tuple[str, ...] | None) -> None:
    """Without names, those that have not succeeded; a named one is started again even if it has."""
    plan = plan_start_again(LaunchSpec(run_id=RUN, provider="local", job=JOB), OBSERVED, names)
    starts = [action.tasks for action in plan.actions if isinstance(action, StartCommand)]
    assert starts == ([started] if started else [])
    assert started or "at work already" in plan.notes[0]


def test_tasks_are_chosen_in_the_job_s_order() -> None:
    """An unknown name is refused with those that there are; a run without names has none to choose."""
    assert [task.name for task in choose_tasks(RUN, JOB.tasks, ["d", "a", "d"])] == ["a", "d"]
    assert choose_tasks(RUN, JOB.tasks, []) == JOB.tasks
    with pytest.raises(BadRequestError, match="no task 'x'") as caught:
        choose_tasks(RUN, JOB.tasks, ["a", "x"])
    assert caught.value.why == "its tasks: a, b, c, d"
    with pytest.raises(BadRequestError) as caught:
        choose_tasks(RUN, [Task(run="x")], [""])
    assert caught.value.why == "it has one command, without a name"
