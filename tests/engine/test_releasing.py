"""A run's other resources are removed as machines are: the intent is recorded before, the outcome after."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.app.root import App
from orchestrator.cli.drawing.plans import print_remaining
from orchestrator.core.actions import ReleaseRun
from orchestrator.core.errors import StillBillingError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.engine.observing.reconcile import close_run, reconcile
from tests.support.fakes import NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits"))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run, whose machine is gone."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(SPEC, NOW)
    yield opened
    opened.close()


@dataclass
class Releasing(FakeProvider):
    """Records the ledger's state during its release, and fails if it is told to."""

    ledger: SqliteLedger | None = None
    refuses: bool = False
    seen: tuple[str, ...] = ()

    def release(self, run_id: str) -> Sequence[str]:
        assert self.ledger is not None
        self.seen = tuple(f"{intent.kind} {intent.subject}" for intent in self.ledger.open_intents(run_id))
        if self.refuses:
            raise StillBillingError("the volume is still there")
        return ("removed the firewall", "kept the volume")


def test_a_release_is_in_the_ledger_before_it_happens(ledger: SqliteLedger) -> None:
    """Afterwards it is settled, and the run is closed."""
    provider = Releasing(ledger=ledger)
    assert close_run(make_world(ledger, provider), RUN) == ("kept the volume",)
    assert provider.seen == (f"ReleaseRun {RUN}",)
    assert [intent.state for intent in ledger.intents(RUN)] == [IntentState.DONE]
    assert ledger.runs(live_only=True) == ()


def test_a_release_that_fails_is_recorded_and_leaves_the_run_open(ledger: SqliteLedger) -> None:
    """The next teardown releases it again."""
    provider = Releasing(ledger=ledger, refuses=True)
    with pytest.raises(StillBillingError):
        close_run(make_world(ledger, provider), RUN)
    (failed,) = ledger.intents(RUN)
    assert (failed.state, failed.detail) == (IntentState.FAILED, "StillBillingError")
    provider.refuses = False
    close_run(make_world(ledger, provider), RUN)
    assert ledger.runs(live_only=True) == ()


def test_an_interrupted_release_is_not_taken_for_a_machine(ledger: SqliteLedger) -> None:
    """The next query settles it and says so."""
    ledger.intend(RUN, ReleaseRun(run_id=RUN), NOW)
    said = io.StringIO()
    print_remaining(Console(file=said), cast("App", SimpleNamespace(ledger=ledger, clock=SystemClock())), SPEC)
    assert "may exist" not in said.getvalue()
    assert f"ReleaseRun of {RUN} was interrupted" in reconcile(make_world(ledger, FakeProvider()), RUN)
    assert ledger.open_intents(RUN) == ()
