"""Finds what is left of runs at a provider, and ends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec

from orchestrator.core.actions import AwaitMachine, CreateMachine, DestroyMachine, StartCommand
from orchestrator.core.errors import ConflictError
from orchestrator.core.ledger import Intent, IntentState, RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.reaping import History, Reaping, RunSeen, plan_reaping
from orchestrator.core.sweep import Leftover, Sweep, UnseenPart
from orchestrator.engine.ending import await_end
from orchestrator.engine.events import Events
from orchestrator.engine.performing import Performer
from orchestrator.engine.reconcile import close_run, reconcile
from orchestrator.engine.world import World

_LOOKERS = timedelta(seconds=5)
"""How long a reaping waits for a command that only looks, such as `status`, which settles the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What there is at one provider.

    Attributes:
        reapings: of runs of which there is something to say.
        kept: what goes on billing because the job said so.
        unseen: what couldn't be listed.
    """

    reapings: tuple[Reaping, ...] = ()
    kept: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()


def survey(world: World, *, everyone: bool, bills_when_off: bool = False) -> Survey:
    """Look at all that the provider has and at all that the ledger says of it; nothing is changed.

    Args:
        world: the provider's world.
        everyone: other computers' machines are to be ended, too, when they are past their deadline.
        bills_when_off: the provider bills a machine that is powered off like one that runs.

    Raises:
        BadRequestError: there are no credentials.
        KedgeError: the provider doesn't answer.
    """
    # The marks are read first: what anybody does from here on makes the plan stale.
    records = {run.run_id: run for run in world.ledger.runs() if run.spec.provider == world.provider.name}
    marks = {run_id: world.ledger.mark(run_id) for run_id in records}
    swept = world.provider.sweep()
    now = world.clock.now()
    runs = (replace(seen, bills_when_off=bills_when_off) for seen in _runs_seen(world, records, marks, swept))
    planned = [plan_reaping(seen, now, everyone=everyone) for seen in runs]
    return Survey(
        reapings=tuple(reaping for reaping in planned if reaping.findings),
        kept=tuple(left for left in swept.leftovers if left.kept),
        unseen=swept.unseen,
    )


def reap(world: World, reaping: Reaping, events: Events) -> None:
    """End what was found of one run; what has ended meanwhile is no error.

    Raises:
        ConflictError: another command is at work on the run, or has been since it was looked at.
        StillBillingError: the provider hasn't confirmed the end of something in time.
    """
    if reaping.seen.record is None:
        _end_by_marks(world, reaping)
        if reaping.closes:
            world.provider.release(reaping.seen.run_id)
    elif reaping.seen.busy and reaping.ends:
        # Whoever has the run's lock finds its machine gone, and settles the ledger.
        _end_by_marks(world, reaping)
    else:
        _reap_own(world, reaping, reaping.seen.record, events)


def _reap_own(world: World, reaping: Reaping, record: RunRecord, events: Events) -> None:
    """End it as a teardown does: with the run's lock, and an intent before every end."""
    run_id = record.run_id
    with world.ledger.lock(run_id, wait=_LOOKERS):
        if world.ledger.mark(run_id) != reaping.seen.mark:
            raise ConflictError(f"another command has acted on run {run_id} since it was looked at")
        reconcile(world, run_id)
        performer = Performer(record.spec, world, events)
        for machine in reaping.ends:
            performer.perform(DestroyMachine(machine_id=machine.id, leaves_results=True), ends=True)
        if reaping.closes:
            close_run(world, run_id)
        if reaping.closes and not reaping.seen.is_live:
            # Closing has released only what was live.
            world.provider.release(run_id)


def _end_by_marks(world: World, reaping: Reaping) -> None:
    """End machines, and leave the ledger as it is: it is none of this command's."""
    for machine in reaping.ends:
        world.provider.destroy(machine.id)
        await_end(world, machine)


def _runs_seen(world: World, records: dict[str, RunRecord], marks: dict[str, int], swept: Sweep) -> Sequence[RunSeen]:
    machines, leftovers = defaultdict[str, list[Machine]](list), defaultdict[str, list[Leftover]](list)
    for machine in swept.machines:
        machines[machine.run_id].append(machine)
    for leftover in swept.leftovers:
        leftovers[leftover.run_id].append(leftover)
    runs = (_see(world, run_id, records.get(run_id)) for run_id in sorted({*records, *machines, *leftovers}))
    return [
        replace(
            seen,
            machines=tuple(machines[seen.run_id]),
            leftovers=tuple(leftovers[seen.run_id]),
            deadlines=(*seen.deadlines, *(machine.deadline_at for machine in machines[seen.run_id])),
            mark=marks.get(seen.run_id, 0),
        )
        for seen in runs
    ]


def _see(world: World, run_id: str, record: RunRecord | None) -> RunSeen:
    """See what the ledger has of a run."""
    if record is None:
        return RunSeen(run_id=run_id, provider=world.provider.name)
    intents = world.ledger.intents(run_id)
    return RunSeen(
        run_id=run_id,
        provider=world.provider.name,
        record=record,
        recorded=world.ledger.machines(run_id, live_only=True),
        history=read_history(intents, has_command=bool(record.spec.job.run)),
        interrupted=tuple(intent.kind for intent in intents if intent.state is IntentState.OPEN),
        deadlines=tuple(machine.deadline_at for machine in world.ledger.machines(run_id)),
        busy=_is_busy(world, run_id),
    )


def _is_busy(world: World, run_id: str) -> bool:
    try:
        with world.ledger.lock(run_id):
            return False
    except ConflictError:
        return True


def read_history(intents: Sequence[Intent], *, has_command: bool) -> History:
    """Read what was done with a run's machines; a plain machine, without a command, is of use once it answers."""
    created = {intent.subject for intent in intents if intent.kind == CreateMachine.__name__}
    used = {intent.subject for intent in intents if _is_use(intent, has_command=has_command)}
    ending = {intent.subject for intent in intents if intent.kind == DestroyMachine.__name__}
    return History(
        created=frozenset(created),
        used=frozenset(used),
        ending=frozenset(ending),
        last_was_end=bool(intents) and intents[-1].kind == DestroyMachine.__name__,
    )


def _is_use(intent: Intent, *, has_command: bool) -> bool:
    if intent.kind == CreateMachine.__name__:
        refused = intent.state is IntentState.FAILED
        return not refused and msgspec.json.decode(intent.payload, type=CreateMachine).starts
    if has_command:
        return intent.kind == StartCommand.__name__
    return intent.kind == AwaitMachine.__name__ and intent.state is IntentState.DONE
