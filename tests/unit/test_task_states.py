"""`status` of a run with several tasks: a row for each, on a terminal of any width."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.cli.drawing.status_line import status_line_of
from orchestrator.cli.drawing.task_states import describe_states, run_progress, task_table, tasks_as_data
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.protocol.report import Checkpoint, Command, MachineReport, RunState, TaskReport
from orchestrator.core.protocol.sample import Gpu, Sample
from orchestrator.core.task import Task
from orchestrator.engine.observing.recorded import RunStatus

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)
RUNNING = Command(state=RunState.RUNNING, attempt=2)
TASKS = (Task(name="pcdiff", run="a", gpus=(0, 1)), Task(name="voxel", run="b", gpus=(2,)), Task(name="score", run="c"))
REPORT = MachineReport(
    machine="r-m1",
    run="r",
    now=NOW.timestamp(),
    created=0,
    deadline_at=NOW.timestamp() + 3600,
    usd_per_hour="1",
    command=RUNNING,
    sample=Sample(
        time=NOW.timestamp(),
        cpu_percent=1,
        memory_used_mib=1,
        memory_total_mib=2,
        gpus=(Gpu(index=0, use_percent=90), Gpu(index=1), Gpu(index=2, use_percent=4)),
    ),
    tasks={
        "pcdiff": TaskReport(
            command=RUNNING,
            progress={"step": 7, "metrics": {"loss": 0.5}},
            checkpoint=Checkpoint(name="step-6.pt", bytes=1, written=NOW.timestamp() - 90),
        ),
        "voxel": TaskReport(command=RUNNING),
        "score": TaskReport(command=Command(state=RunState.WAITING, reason="starts after pcdiff")),
    },
)
SPEC = LaunchSpec(run_id="r", provider="local", job=Job(name="j", tasks=TASKS))
RECORD = RunRecord(spec=SPEC, stage=RunStage.LIVE, outcome="", created_at=NOW, ended_at=None)
STATUS = RunStatus(
    record=RECORD,
    now=NOW,
    machines=(),
    spent_usd=Decimal(1),
    report=REPORT,
    stalled={"voxel": timedelta(minutes=12)},
)


def rows(*names: str, room: int = 200) -> dict[str, list[str]]:
    table = task_table(STATUS, names)
    assert table is not None
    return {line[2:].split()[0]: line.split() for line in table.lines(room)[1:]}


def test_each_task_has_a_row_with_its_own_state() -> None:
    """Its progress, its newest checkpoint, the load of its GPUs; a mark if it is silent."""
    found = rows()
    assert list(found) == ["pcdiff", "voxel", "score"]
    assert " ".join(found["pcdiff"]) == "pcdiff running 2 step 7 loss 0.5 step-6.pt, 1m 30s old 90% ?"
    assert " ".join(found["voxel"]) == "! voxel running 2 - - 4% silent for 12m"
    assert found["score"][-3:] == ["starts", "after", "pcdiff"]
    assert list(rows("voxel")) == ["voxel"]


@pytest.mark.parametrize("room", [200, 80, 50])
def test_the_table_fits_the_terminal(room: int) -> None:
    """Its cells are folded; on a very narrow one, each is a line."""
    table = task_table(STATUS, ())
    assert table is not None
    assert max(map(len, table.lines(room))) <= room


def test_many_runs_have_one_line_each() -> None:
    """It counts the tasks in each state, and shows the progress of an only task."""
    assert run_progress(STATUS.task_reports) == "2 running, 1 waiting"
    assert run_progress({"pcdiff": REPORT.tasks["pcdiff"]}) == "step 7  loss 0.5"


def test_the_status_line_names_each_task() -> None:
    """With its step while it runs."""
    assert status_line_of(REPORT, None).startswith("pcdiff step 7, voxel running, score waiting  ")


def test_scripts_get_the_same_as_data() -> None:
    """In the job's order."""
    found = tasks_as_data(STATUS, ())
    assert [(task["task"], task["state"], task["silent_seconds"]) for task in found] == [
        ("pcdiff", "running", None),
        ("voxel", "running", 720.0),
        ("score", "waiting", None),
    ]
    assert describe_states({"": RUNNING}) == ""
    assert describe_states({"a": RUNNING}) == "a: running"
