"""Use cases that look at runs; nothing but the ledger is changed by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.app.root import App
from orchestrator.core.cost import Rental
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.engine.recorded import RunStatus, recorded_status


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a run has cost."""

    record: RunRecord
    rentals: tuple[Rental, ...]
    now: datetime


def read_statuses(app: App, *, run: str | None, everything: bool, ledger_only: bool) -> tuple[RunStatus, ...]:
    """Tell how runs are: one, all live ones, or all that the ledger has."""
    records = (app.named_run(run),) if run else app.ledger.runs(live_only=not everything)
    if ledger_only:
        return tuple(recorded_status(app.ledger, record, app.clock.now()) for record in records)
    return _observe(app, records)


def read_costs(app: App, run: str | None) -> tuple[RunCost, ...]:
    """Add up what runs have cost; machines that ended by themselves are looked for first."""
    records = (app.named_run(run),) if run else app.ledger.runs()
    _observe(app, [record for record in records if record.stage is RunStage.LIVE])
    now = app.clock.now()
    return tuple(RunCost(record=record, rentals=app.ledger.rentals(record.run_id), now=now) for record in records)


def find_strays(app: App) -> tuple[Machine, ...]:
    """Ask every provider that was ever used for machines that no live run of the ledger's accounts for."""
    from orchestrator.engine import reconcile  # noqa: PLC0415 - as in _observe

    return tuple(machine for name in app.known_providers() for machine in reconcile.find_strays(app.world(name)))


def _observe(app: App, records: Sequence[RunRecord]) -> tuple[RunStatus, ...]:
    if not records:
        return ()
    # Imported when needed: it loads the planner, which costs as much as reading the ledger.
    from orchestrator.engine.status import observed_statuses  # noqa: PLC0415

    return observed_statuses([(app.world(record.spec.provider), record) for record in records])
