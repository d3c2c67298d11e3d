"""Following ends soon after the deadline, even if the machine reports that its command is still running."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import FollowCommand
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Connector, Remote
from orchestrator.core.task import Task
from orchestrator.engine.events import Event, Remark
from orchestrator.engine.performing import Performer
from orchestrator.engine.steps.fetch import time_to_copy
from orchestrator.engine.steps.follow import follow as follow_machine
from tests.support.fakes import M1, MACHINE, NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)))
ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
REPORT = {"machine": M1, "run": RUN, "now": 1.0, "created": 0.0, "deadline": 2e9, "usd_per_hour": "1"}


@dataclass
class Forever:
    """A machine that reports a running command at each query; after too many queries the test fails."""

    reports: int = 50

    def connect(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

    def lines(self, _argv: Sequence[str]) -> Iterator[bytes]:
        for offset in range(self.reports):
            report = {**REPORT, "command": {"state": "running"}}
            yield json.dumps({"offset": offset, "report": report}).encode()
        raise AssertionError("it is followed for ever")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(SPEC, NOW)
    yield opened
    opened.close()


def follow(ledger: SqliteLedger, late: timedelta) -> tuple[Performer, list[Event]]:
    """Follow a machine whose deadline was so long ago."""
    machine = replace(MACHINE, address=ADDRESS, deadline_at=SystemClock().now() - late)
    ledger.put_machine(machine)
    told: list[Event] = []
    world = replace(make_world(ledger, FakeProvider(there=(machine,))), connector=cast("Connector", Forever()))
    performer = Performer(SPEC, world, told.append)
    performer.follow(FollowCommand(machine_id=M1))
    return performer, told


def test_a_machine_that_outlives_its_deadline_is_followed_no_longer(ledger: SqliteLedger) -> None:
    """The plan continues to its end as at any deadline, and says why."""
    performer, told = follow(ledger, timedelta(minutes=31))
    assert performer.progress.command.met_deadline
    assert [each.text for each in told if isinstance(each, Remark) and "not ended at its deadline" in each.text]


def test_a_machine_that_booted_slowly_is_followed_to_its_own_deadline(ledger: SqliteLedger) -> None:
    """Its own timer started with its boot."""
    with pytest.raises(AssertionError, match="for ever"):
        follow(ledger, timedelta(minutes=20))


def test_a_machine_whose_deadline_was_moved_meanwhile_is_followed_on(ledger: SqliteLedger) -> None:
    """Another command has moved it after the following began: the ledger says where to."""
    late = replace(MACHINE, address=ADDRESS, deadline_at=SystemClock().now() - timedelta(hours=3))
    ledger.put_machine(replace(late, deadline_at=SystemClock().now() + timedelta(hours=1)))
    world = replace(make_world(ledger, FakeProvider(there=(late,))), connector=cast("Connector", Forever()))
    with pytest.raises(AssertionError, match="for ever"):
        list(follow_machine(world, late, offsets={}, until_over=True))


def test_a_copy_may_last_until_the_deadline() -> None:
    """Results still come home from a machine past its deadline, if the copy takes only minutes."""
    machine = replace(MACHINE, deadline_at=NOW + timedelta(hours=3))
    assert time_to_copy(machine, NOW) == timedelta(hours=3)
    assert time_to_copy(machine, NOW + timedelta(days=1)) == timedelta(minutes=10)
