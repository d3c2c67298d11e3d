"""A followed machine is ended at its deadline, even if its results can't be fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import FetchResults
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import MachineState, SshAddress
from orchestrator.core.protocol.report import DEADLINE, Command, RunState
from orchestrator.core.task import Task
from orchestrator.engine.events import Event, Remark
from orchestrator.engine.performing import Performer
from tests.support.fakes import M1, MACHINE, NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)))
FETCH = FetchResults(machine_id=M1, destination="/nowhere")
OFF = replace(MACHINE, state=MachineState.ENDING)
ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run and its machine."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(SPEC, NOW)
    opened.put_machine(replace(MACHINE, address=ADDRESS))
    yield opened
    opened.close()


def fetch(ledger: SqliteLedger, reason: str) -> tuple[str, list[Event]]:
    """Fetch from a machine that is off, after its command was stopped."""
    told: list[Event] = []
    performer = Performer(SPEC, make_world(ledger, FakeProvider(there=(OFF,))), told.append)
    performer.progress.command = Command(state=RunState.STOPPED, reason=reason)
    return performer.perform(FETCH, ends=True), told


def test_unfetchable_results_keep_no_machine_past_its_deadline(ledger: SqliteLedger) -> None:
    """The failure is reported, and the plan continues to the machine's end."""
    note, told = fetch(ledger, DEADLINE)
    assert note == "failed"
    (remark,) = told
    assert isinstance(remark, Remark)
    assert "ended anyway" in remark.text


def test_before_the_deadline_a_machine_is_not_ended_without_its_results(ledger: SqliteLedger) -> None:
    """Somebody else stopped the command: its results can be fetched later."""
    with pytest.raises(UnreachableError):
        fetch(ledger, "asked for")


def test_a_machine_that_never_booted_is_ended_without_results(ledger: SqliteLedger) -> None:
    """It has none: a teardown doesn't keep it billing for them."""
    ledger.put_machine(MACHINE)
    note, (told,) = fetch(ledger, "asked for")
    assert note == "failed"
    assert isinstance(told, Remark)
    assert "ended anyway" in told.text
