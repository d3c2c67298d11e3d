"""Use cases that look at runs; they change nothing but the ledger."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.adapters.providers import find_entry, is_here
from orchestrator.app.root import App
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.values.cost import Rental
from orchestrator.engine.observing.recorded import RunStatus, recorded_status

if TYPE_CHECKING:
    from orchestrator.core.errors import KedgeError
    from orchestrator.engine.observing.status import ObservedRuns

_RECENT = 20
"""How many ended runs are searched for unfetched results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """The cost of a run.

    Attributes:
        rehearsed: it ran on the user's own computer, at a fictional price.
    """

    record: RunRecord
    rentals: tuple[Rental, ...]
    now: datetime
    rehearsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statuses:
    """The status of runs.

    Attributes:
        runs: their statuses.
        strays: machines that belong to no live run, at every provider that was ever used.
        errors: of the providers that could not be asked.
    """

    runs: tuple[RunStatus, ...]
    strays: tuple[Machine, ...] = ()
    errors: tuple[KedgeError, ...] = ()


def read_statuses(app: App, *, run: str | None, everything: bool, ledger_only: bool) -> Statuses:
    """Return the status of one run; or of all live ones and those with unfetched results; or of all in the ledger.

    A provider that can't be asked is an error among others: what the others know is still returned.
    """
    records = (app.named_run(run),) if run else app.ledger.runs(live_only=not everything)
    if ledger_only:
        found = Statuses(runs=_recorded(app, records))
    else:
        seen = _observe(app, records, () if run else app.known_providers())
        runs = _with_gaps(app, seen)
        found = Statuses(runs=runs, strays=() if run else seen.unrecorded, errors=tuple(seen.errors.values()))
    if run or everything:
        return found
    return replace(found, runs=(*found.runs, *_waiting(app, {record.run_id for record in records})))


def _recorded(app: App, records: Sequence[RunRecord]) -> tuple[RunStatus, ...]:
    return tuple(recorded_status(app.ledger, record, app.clock.now()) for record in records)


def _with_gaps(app: App, seen: ObservedRuns) -> tuple[RunStatus, ...]:
    """Report machines that need a reaper, and have lost it since their launch."""
    asked = [each for each in seen.statuses if each.record.spec.provider not in seen.errors]
    if not any(find_entry(each.record.spec.provider).needs_reaper for each in asked if each.machines):
        return seen.statuses
    # Imported when needed: it reads the user's settings.
    from orchestrator.app.launch.reaper import with_gaps  # noqa: PLC0415

    found = {each.record.run_id: each for each in with_gaps(app, asked)}
    return tuple(found.get(each.record.run_id, each) for each in seen.statuses)


def _waiting(app: App, shown: Collection[str]) -> tuple[RunStatus, ...]:
    """List the newest ended runs that have results in the store which nobody has fetched yet."""
    ended = [record for record in app.ledger.runs() if record.stage is RunStage.ENDED][:_RECENT]
    found = _recorded(app, [record for record in ended if record.run_id not in shown])
    return tuple(each for each in found if each.results_wait and app.world(each.record.spec.provider).store)


def live_here(app: App) -> tuple[RunRecord, ...]:
    """List the live runs of this folder's job, newest first, reconciled with their providers."""
    from orchestrator.core.errors import KedgeError  # noqa: PLC0415 - as in _observe

    runs = app.of_this_folder(app.ledger.runs(live_only=True))
    for record in runs:
        # A run that can't be settled now, for example because another command is acting on it, counts as live.
        with suppress(KedgeError):
            app.reconcile(record)
    known = (app.named_run(record.run_id) for record in runs)
    return tuple(record for record in known if record.stage is RunStage.LIVE)


def newest_with_results(app: App) -> RunRecord | None:
    """Return the newest run of this folder's job that has results on its machine or in the store."""
    return next((record for record in app.of_this_folder(app.ledger.runs()) if _has_results(app, record)), None)


def _has_results(app: App, record: RunRecord) -> bool:
    if any(machine.has_booted for machine in app.ledger.machines(record.run_id, live_only=True)):
        return True
    return bool(record.spec.job.tasks) and app.world(record.spec.provider).has_results(record.run_id)


def read_costs(app: App, run: str | None) -> tuple[RunCost, ...]:
    """Add up what runs have cost, after checking for machines that ended by themselves.

    Raises:
        KedgeError: a provider of a live run can't be asked.
    """
    records = (app.named_run(run),) if run else app.ledger.runs()
    seen = _observe(app, [record for record in records if record.stage is RunStage.LIVE])
    for error in seen.errors.values():
        raise error
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


def _observe(app: App, records: Sequence[RunRecord], also: Sequence[str] = ()) -> ObservedRuns:
    # Imported when needed: it loads the planner, which takes as long as reading the ledger.
    from orchestrator.engine.observing.status import ObservedRuns, observe_runs  # noqa: PLC0415

    if not (records or also):
        return ObservedRuns(statuses=())
    names = dict.fromkeys([*(record.spec.provider for record in records), *also])
    groups = ((app.world(name), [each for each in records if each.spec.provider == name]) for name in names)
    seen = observe_runs(groups)
    order = {record.run_id: number for number, record in enumerate(records)}
    return replace(seen, statuses=tuple(sorted(seen.statuses, key=lambda each: order[each.record.run_id])))
