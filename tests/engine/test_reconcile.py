"""What happens to a machine about which the ledger and the provider disagree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.engine.observing.reconcile import reconcile
from tests.support.fakes import M1, MACHINE, NOW, RUN, FakeProvider, make_world


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits")), NOW)
    yield opened
    opened.close()


def die_creating(ledger: SqliteLedger) -> None:
    """Leave the state of a command that died while it created a machine."""
    ledger.intend(RUN, CreateMachine(machine_id=M1, offers=(), lifetime=timedelta(hours=1)), NOW)


def test_a_machine_whose_creator_died_is_guarded(ledger: SqliteLedger) -> None:
    """Nobody knows how far its creation got; then it is in the ledger, and the intent is settled."""
    die_creating(ledger)
    provider = FakeProvider(there=(MACHINE,))
    (finding,) = reconcile(make_world(ledger, provider), RUN)
    assert "a command that died" in finding
    assert provider.guarded == [M1]
    assert ledger.machines(RUN, live_only=True) == (MACHINE,)
    assert ledger.open_intents(RUN) == ()


def test_a_machine_that_the_ledger_does_not_know_is_guarded(ledger: SqliteLedger) -> None:
    """Another laptop's creation may have died, or this one's ledger was lost."""
    provider = FakeProvider(there=(MACHINE,))
    reconcile(make_world(ledger, provider), RUN)
    assert provider.guarded == [M1]
    assert ledger.machines(RUN, live_only=True) == (MACHINE,)


def test_a_known_machine_is_not_guarded_again(ledger: SqliteLedger) -> None:
    """Queries make no more calls than necessary."""
    ledger.put_machine(MACHINE)
    provider = FakeProvider(there=(MACHINE,))
    assert reconcile(make_world(ledger, provider), RUN) == ()
    assert provider.guarded == []


def test_a_machine_that_can_not_be_guarded_can_still_be_ended(ledger: SqliteLedger) -> None:
    """It is in the ledger, the finding says why it isn't guarded, and the next query tries again."""
    die_creating(ledger)
    provider = FakeProvider(there=(MACHINE,), unguarded=KedgeError("no schedule", why="too many"))
    found = reconcile(make_world(ledger, provider), RUN)
    assert f"machine {M1} could not be completed: no schedule; too many" in found
    assert ledger.machines(RUN, live_only=True) == (MACHINE,)
    assert [intent.subject for intent in ledger.open_intents(RUN)] == [M1]
    provider.unguarded = None
    reconcile(make_world(ledger, provider), RUN)
    assert provider.guarded == [M1]
    assert ledger.open_intents(RUN) == ()
