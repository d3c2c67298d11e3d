"""The machines of a run: their numbers, and their rows in `status`."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.cli.drawing.nodes import node_table, nodes_as_data
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, MachineState, node_of
from orchestrator.core.protocol.report import Checkpoint, Command, MachineReport, RunState, TaskReport
from orchestrator.core.protocol.sample import Gpu, Sample
from orchestrator.core.task import Nodes, Task
from orchestrator.core.values.nodes import choose_node
from orchestrator.engine.observing.recorded import RunStatus
from tests.support.fakes import MACHINE, NOW

NOW_S = NOW.timestamp()


def machine(rank: int, **changes: Any) -> Machine:
    return replace(MACHINE, id=f"digits-1-m{rank + 1}", rank=rank, private_address=f"10.0.0.{rank}", **changes)


def report(rank: int, **fields: Any) -> MachineReport:
    usual: dict[str, Any] = {"run": "digits-1", "created": 0.0, "deadline_at": 9e9, "usd_per_hour": "1"}
    return MachineReport(machine=f"digits-1-m{rank + 1}", now=NOW_S, **usual | fields)


def status(*machines: Machine, reports: tuple[MachineReport, ...] = ()) -> RunStatus:
    job = Job(name="digits", tasks=(Task(run="train"),), num_nodes=len(machines))
    spec = LaunchSpec(run_id="digits-1", provider="fake", job=job)
    record = RunRecord(spec=spec, stage=RunStage.LIVE, outcome="running", created_at=NOW, ended_at=None)
    return RunStatus(record=record, now=NOW, machines=machines, spent_usd=Decimal(0), reports=reports)


GPUS = Sample(
    time=NOW_S,
    cpu_percent=1,
    memory_used_mib=1,
    memory_total_mib=1,
    gpus=(Gpu(index=0, use_percent=97), Gpu(index=1, use_percent=3)),
)
RUNNING = Command(state=RunState.RUNNING)


def test_each_machine_has_a_row_by_rank() -> None:
    """Its state, its command's, its newest checkpoint of all tasks, and its load; a silent one says so."""
    tasks = {
        "fit": TaskReport(checkpoint=Checkpoint(name="step3", bytes=1, written=NOW_S - 120)),
        "tune": TaskReport(checkpoint=Checkpoint(name="step9", bytes=1, written=NOW_S - 60)),
    }
    seen = status(
        machine(1, state=MachineState.ENDING),
        machine(0),
        reports=(report(0, command=RUNNING, sample=GPUS, tasks=tasks),),
    )
    table = node_table(seen)
    assert table is not None
    assert [line.split() for line in table.lines()] == [
        ["node", "machine", "state", "command", "address", "checkpoint", "load"],
        ["0", "digits-1-m1", "ready", "running", "10.0.0.0", "step9,", "1m", "old", "GPU", "97%", "3%"],
        ["1", "digits-1-m2", "ending", "no", "answer", "10.0.0.1", "-", "-"],
    ]
    first, second = nodes_as_data(seen)
    assert (first["node"], first["command"], first["checkpoint"].name, first["sample"]) == (0, RUNNING, "step9", GPUS)
    assert (second["node"], second["state"], second["command"]) == (1, "ending", None)


def test_one_machine_has_no_table() -> None:
    """Its lines say the same; scripts get a list in any case."""
    assert node_table(status(machine(0))) is None
    assert [each["node"] for each in nodes_as_data(status(machine(0)))] == [0]


def test_a_node_is_the_newest_machine_of_its_rank() -> None:
    """Without a head, the newest machine stands in for it."""
    first, second, third = machine(0), machine(1), replace(machine(1), id="digits-1-m3")
    assert node_of([first, second, third], 1) is third
    assert node_of([first, second], 0) is first
    assert node_of([second, third], 0) is third
    assert (node_of([first], 1), node_of([], 0)) == (None, None)


@pytest.mark.parametrize("text", ["4", "-1", "x", "", "1.0", "99999999999999999999", "\u0663"])
def test_a_wrong_node_is_refused(text: str) -> None:
    """With those that there are."""
    with pytest.raises(BadRequestError) as refused:
        choose_node("digits-1", 4, text)
    assert refused.value.what == f"run digits-1 has no node {text!r}"
    assert refused.value.why == "its nodes: 0 to 3"
    assert refused.value.fix == "name one of them with --node, or leave --node out"


def test_a_run_with_one_machine_has_node_0() -> None:
    """Any other is refused."""
    assert (choose_node("digits-1", 1, "0"), choose_node("digits-1", 4, "3")) == (0, 3)
    with pytest.raises(BadRequestError) as refused:
        choose_node("digits-1", 1, "1")
    assert refused.value.why == "it has one machine, which is node 0"
    assert refused.value.fix == "leave --node out"


def test_a_task_of_the_head_runs_nowhere_else() -> None:
    """Others run on every machine."""
    assert [Task(run="x", nodes=Nodes.HEAD).runs_on(rank) for rank in (0, 1)] == [True, False]
    assert [Task(run="x").runs_on(rank) for rank in (0, 1)] == [True, True]
