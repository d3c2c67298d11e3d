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
from orchestrator.core.job import Expect, Job, LaunchSpec
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.engine.observing.status import observed_statuses
from tests.support.fakes import MACHINE, NOW, RUN, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
MINUTE = 60.0


@dataclass
class Agent:
    """An agent whose command started an hour ago."""

    report: dict[str, Any] = field(default_factory=dict)

    def connect(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

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


def findings(folder: Path, *, first_step: timedelta | None = None, **report: float) -> tuple[str, ...]:
    """Return the findings of a run whose machine reports this."""
    ledger = SqliteLedger(folder / "ledger", SystemClock())
    job = Job(name="digits", run="train", expect=Expect(first_step=first_step))
    ledger.open_run(LaunchSpec(run_id=RUN, provider="fake", job=job), NOW)
    machine = replace(MACHINE, address=ADDRESS)
    ledger.put_machine(machine)
    world = make_world(ledger, FakeProvider(there=(machine,)))
    record = ledger.run(RUN)
    assert record is not None
    (status,) = observed_statuses([(replace(world, connector=cast("Connector", Agent(report))), record)])
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
