"""Use cases that look at runs; nothing but the ledger is changed by them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from orchestrator.adapters.providers import is_here
from orchestrator.app.root import App
from orchestrator.core.cost import Rental
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.engine.recorded import RunStatus, recorded_status

_RECENT = 20
"""Of how many ended runs results are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What a run has cost.

    Attributes:
        rehearsed: it ran on the user's own computer, at a price that nobody pays.
    """

    record: RunRecord
    rentals: tuple[Rental, ...]
    now: datetime
    rehearsed: bool = False


def read_statuses(app: App, *, run: str | None, everything: bool, ledger_only: bool) -> tuple[RunStatus, ...]:
    """Tell how runs are: one, all live ones and those whose results wait, or all that the ledger has."""
    records = (app.named_run(run),) if run else app.ledger.runs(live_only=not everything)
    seen = _recorded(app, records) if ledger_only else _observe(app, records)
    return seen if run or everything else (*seen, *_waiting(app, {record.run_id for record in records}))


def _recorded(app: App, records: Sequence[RunRecord]) -> tuple[RunStatus, ...]:
    return tuple(recorded_status(app.ledger, record, app.clock.now()) for record in records)


def _waiting(app: App, shown: Collection[str]) -> tuple[RunStatus, ...]:
    """List what the newest runs that ended have left in the store, for somebody to fetch."""
    ended = [record for record in app.ledger.runs() if record.stage is RunStage.ENDED][:_RECENT]
    found = _recorded(app, [record for record in ended if record.run_id not in shown])
    return tuple(each for each in found if each.results_wait and app.world(each.record.spec.provider).store)


def live_here(app: App) -> tuple[RunRecord, ...]:
    """List the live runs of this folder's job, newest first, as their providers know them."""
    from orchestrator.core.errors import KedgeError  # noqa: PLC0415 - as in _observe

    runs = app.of_this_folder(app.ledger.runs(live_only=True))
    for record in runs:
        # One that nobody can settle now, such as one that another command is at work on, is live for all that is known.
        with suppress(KedgeError):
            app.settle(record)
    known = (app.named_run(record.run_id) for record in runs)
    return tuple(record for record in known if record.stage is RunStage.LIVE)


def newest_with_results(app: App) -> RunRecord | None:
    """Return the newest run of this folder's job that has results: on its machine, or in the store."""
    return next((record for record in app.of_this_folder(app.ledger.runs()) if _has_results(app, record)), None)


def _has_results(app: App, record: RunRecord) -> bool:
    if any(machine.has_booted for machine in app.ledger.machines(record.run_id, live_only=True)):
        return True
    return bool(record.spec.job.run) and app.world(record.spec.provider).has_results(record.run_id)


def read_costs(app: App, run: str | None) -> tuple[RunCost, ...]:
    """Add up what runs have cost; machines that ended by themselves are looked for first."""
    records = (app.named_run(run),) if run else app.ledger.runs()
    _observe(app, [record for record in records if record.stage is RunStage.LIVE])
    now = app.clock.now()
    return tuple(
        RunCost(
            record=record,
            rentals=app.ledger.rentals(record.run_id),
            now=now,
            rehearsed=is_here(record.spec.provider),
        )
        for record in records
    )


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
