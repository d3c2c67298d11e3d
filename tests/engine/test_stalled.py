"""What `status` finds on a machine that answers: a command that hangs, and a dead agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.task import Expect, Task
from orchestrator.engine.observing.status import observe_runs
from tests.support.fakes import MACHINE, NOW, RUN, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
MINUTE = 60.0
ONLY = (Task(run="train"),)


@dataclass
class Agent:
    """An agent whose command started an hour ago."""

    report: dict[str, Any] = field(default_factory=dict)

    def connect(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

    opened = connect

    def run(self, _argv: Sequence[str], **_more: Any) -> Completed:
        now = NOW.timestamp()
        report = {
            "machine": MACHINE.id,
            "run": RUN,
            "now": now,
            "created": now - 60 * MINUTE,
            "deadline": now + 60 * MINUTE,
            "usd_per_hour": "1",
            "heartbeat": now,
            "command": {"state": "running", "since": now - 60 * MINUTE},
            "advanced": now,
        }
        return Completed(exit_code=0, stdout=json.dumps(report | self.report).encode(), stderr=b"")


def findings(
    folder: Path,
    *,
    first_step: timedelta | None = None,
    planned: tuple[Task, ...] = (Task(run="train"),),
    **report: Any,
) -> tuple[str, ...]:
    """Return the findings of a run whose machine reports this."""
    ledger = SqliteLedger(folder / "ledger", SystemClock())
    job = Job(name="digits", tasks=planned, expect=Expect(first_step=first_step))
    ledger.open_run(LaunchSpec(run_id=RUN, provider="fake", job=job), NOW)
    machine = replace(MACHINE, address=ADDRESS)
    ledger.put_machine(machine)
    world = make_world(ledger, FakeProvider(there=(machine,)))
    record = ledger.run(RUN)
    assert record is not None
    (status,) = observe_runs([(replace(world, connector=cast("Connector", Agent(report))), [record])]).statuses
    ledger.close()
    return status.findings


@pytest.mark.parametrize(("first_step", "is_stalled"), [(None, True), (timedelta(hours=2), False)])
def test_a_hanging_command_is_found_once_its_first_step_is_due(
    tmp_path: Path, first_step: timedelta | None, is_stalled: bool
) -> None:
    """With `expect: {first_step: 2h}`, an hour of silence is no finding."""
    found = findings(tmp_path, first_step=first_step, advanced=NOW.timestamp() - 20 * MINUTE)
    assert ["written nothing for 20m" in finding for finding in found] == [True] * is_stalled


def test_an_agent_without_a_heartbeat_for_a_minute_is_found(tmp_path: Path) -> None:
    """Nothing would end the machine at its deadline, nor upload its results."""
    assert findings(tmp_path, heartbeat=NOW.timestamp() - 30) == ()
    (found,) = findings(tmp_path / "later", heartbeat=NOW.timestamp() - 2 * MINUTE)
    assert "has had no heartbeat for 120 s" in found


def test_each_task_is_compared_with_its_own_first_step(tmp_path: Path) -> None:
    """The finding names the task, and commands that act on it alone."""
    patient = Expect(first_step=timedelta(hours=2))
    planned = (Task(name="fit", run="fit"), Task(name="tune", run="tune", expect=patient))
    silent = {
        "command": {"state": "running", "since": NOW.timestamp() - 60 * MINUTE},
        "advanced": NOW.timestamp() - 20 * MINUTE,
    }
    (found,) = findings(tmp_path, planned=planned, tasks={"fit": silent, "tune": silent})
    assert found.startswith("task fit has written nothing for 20m")
    for command in (f"`kedge logs {RUN} --task fit`", f"`kedge stop {RUN} --task fit`", "`kedge start --task fit`"):
        assert command in found


def test_the_way_back_of_a_task_names_its_own_folders(tmp_path: Path) -> None:
    """A task that seems to have started over is stopped, its older checkpoint copied back, and it is started again."""
    anew = {"name": "2.pt", "had": "9.pt", "step": 2, "had_step": 9, "bytes": 1, "had_bytes": 1, "kept": "9.pt"}
    seen = {"command": {"state": "running", "since": NOW.timestamp()}, "advanced": NOW.timestamp(), "anew": anew}
    (found,) = findings(tmp_path, planned=(Task(name="fit", run="fit"),), tasks={"fit": seen})
    assert found.startswith("task fit seems to have started over")
    results = f"{MACHINE.root}/results/fit"
    assert f"cp -r {results}/checkpoints.kept/9.pt {results}/checkpoints/" in found
    assert f"`kedge start {RUN} --task fit --reread`" in found
