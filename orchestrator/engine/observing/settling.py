"""Reconciles many runs with their providers, each of which is asked for one list, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.engine.observing.listings import Listing, Listings
from orchestrator.engine.observing.reconcile import differences, in_one_line, reconcile
from orchestrator.engine.world import World

_BUSY = "another kedge command is at work on this run"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledRun:
    """A run that was reconciled as far as possible.

    Attributes:
        machines: those that may be billing, as their provider describes them.
        findings: what was found, or why the run could not be reconciled, one line each.
    """

    world: World
    record: RunRecord
    machines: tuple[Machine, ...]
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The result for all runs.

    Attributes:
        runs: group by group.
        unrecorded: machines at a provider that belong to no live run.
        errors: of the providers that could not be asked, by their names.
    """

    runs: tuple[SettledRun, ...]
    unrecorded: tuple[Machine, ...]
    errors: dict[str, KedgeError]


def settle_runs(
    groups: Iterable[tuple[World, Sequence[RunRecord]]],
    meanwhile: Callable[[list[tuple[World, Machine]]], None] = lambda _machines: None,
) -> Settled:
    """Reconcile runs, and list the machines at their providers.

    A provider that fails, or doesn't answer in time, doesn't keep the others' runs from being reconciled. The locks of
    live runs are taken before the lists are requested, because a list must not be older than another command's change.
    Only the calling thread uses the ledger.

    Args:
        groups: each provider with its runs. The list of one is requested before the next group is taken from here,
            because loading a provider takes a while.
        meanwhile: called with the machines of live runs, as the ledger has them, once all lists are requested.
    """
    found: dict[str, _Group] = {}
    listings, listed, live = Listings(), list[Machine](), set[str]()
    with ExitStack() as held:
        for world, records in groups:
            live |= _live_runs(world)
            found[world.provider.name] = _Group(world, held.enter_context(ExitStack()), records)
            found[world.provider.name].lock()
            listings.request(world)
        meanwhile([each for group in found.values() for each in group.recorded()])
        for listing in listings.arrivals():
            found[listing.world.provider.name].settle(listing)
            listed += listing.machines
    for group in found.values():
        live |= _live_runs(group.world)
    return Settled(
        runs=tuple(run for group in found.values() for run in group.settled),
        unrecorded=tuple(machine for machine in listed if machine.run_id not in live),
        errors={name: group.error for name, group in found.items() if group.error is not None},
    )


def _live_runs(world: World) -> set[str]:
    return {record.run_id for record in world.ledger.runs(live_only=True)}


@dataclass(slots=True)
class _Group:
    """The runs of one provider, with the locks of those that are live."""

    world: World
    locks: ExitStack
    records: Sequence[RunRecord]
    busy: set[str] = field(default_factory=set)
    settled: list[SettledRun] = field(default_factory=list)
    error: KedgeError | None = None

    def lock(self) -> None:
        for run_id in (record.run_id for record in self.records if record.stage is RunStage.LIVE):
            try:
                self.locks.enter_context(self.world.ledger.lock(run_id))
            except ConflictError:
                self.busy.add(run_id)

    def recorded(self) -> list[tuple[World, Machine]]:
        live = {record.run_id for record in self.records if record.stage is RunStage.LIVE}
        return [(self.world, each) for each in self.world.ledger.machines(live_only=True) if each.run_id in live]

    def settle(self, listing: Listing) -> None:
        self.error = _own_error(listing)
        self.settled = [self._settle(record, listing) for record in self.records]
        self.locks.close()

    def _settle(self, record: RunRecord, listing: Listing) -> SettledRun:
        findings = () if self.error else self._reconcile(record, listing.machines)
        if self.error is not None:
            name = self.world.provider.name
            findings = (f"{name} could not be asked, so this is what the ledger has: {in_one_line(self.error)}",)
        there = {machine.id: machine for machine in listing.machines}
        known = self.world.ledger.machines(record.run_id, live_only=True)
        return SettledRun(
            world=self.world,
            record=self.world.ledger.run(record.run_id) or record,
            machines=tuple(_present(machine, there.get(machine.id)) for machine in known),
            findings=findings,
        )

    def _reconcile(self, record: RunRecord, listed: Sequence[Machine]) -> tuple[str, ...]:
        run_id = record.run_id
        if run_id in self.busy:
            return (_BUSY, *differences(self.world, run_id, listed))
        try:
            if record.stage is RunStage.LIVE:
                return reconcile(self.world, run_id, listed)
            return self._reconcile_ended(run_id) if self._has_something(run_id, listed) else ()
        except KedgeError as err:
            self.error = err
            return ()

    def _reconcile_ended(self, run_id: str) -> tuple[str, ...]:
        try:
            with self.world.ledger.lock(run_id):
                return reconcile(self.world, run_id)
        except ConflictError:
            return (_BUSY,)

    def _has_something(self, run_id: str, listed: Sequence[Machine]) -> bool:
        ledger = self.world.ledger
        is_listed = any(machine.run_id == run_id for machine in listed)
        return is_listed or bool(ledger.machines(run_id, live_only=True) or ledger.open_intents(run_id))


def _own_error(listing: Listing) -> KedgeError | None:
    """Return why a provider could not be asked.

    Raises:
        Exception: it is a bug.
    """
    if listing.error is not None and not isinstance(listing.error, KedgeError):
        raise listing.error
    return listing.error


def _present(recorded: Machine, listed: Machine | None) -> Machine:
    """Return a machine as its provider describes it; one that has lost its folder doesn't know its rank any more."""
    return recorded if listed is None else replace(listed, rank=recorded.rank)
