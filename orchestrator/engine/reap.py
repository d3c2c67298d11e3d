"""Surveys what runs have left at a provider, and ends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.core.actions import (
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    ReleaseRun,
    StartCommand,
)
from orchestrator.core.errors import ConflictError
from orchestrator.core.job import Job
from orchestrator.core.ledger import LOOK_WAIT, Intent, IntentState, RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.policy.findings import History, Reaping, RunSeen
from orchestrator.core.policy.reaping import plan_reaping
from orchestrator.core.sweep import Leftover, Sweep, UnseenPart
from orchestrator.core.values.structs import decode_json
from orchestrator.engine.events import Events
from orchestrator.engine.observing.observe import head_reports, idle_machines
from orchestrator.engine.observing.questions import ask_each
from orchestrator.engine.observing.reconcile import close_run, note_outcome, reconcile, release_run
from orchestrator.engine.performing import Performer
from orchestrator.engine.steps.end_machine import await_end
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What exists at one provider.

    Attributes:
        reapings: for the runs that need attention.
        kept: what continues to bill because the job asked for that.
        unseen: the parts that couldn't be listed.
    """

    reapings: tuple[Reaping, ...] = ()
    kept: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()


def survey_provider(world: World, *, everyone: bool, bills_when_off: bool = False) -> Survey:
    """Compare everything at the provider with the ledger; nothing is changed.

    Args:
        world: the provider's world.
        everyone: also end other computers' machines that are past their deadline.
        bills_when_off: the provider bills a powered-off machine like a running one.

    Raises:
        BadRequestError: there are no credentials.
        KedgeError: the provider doesn't answer.
    """
    # The revisions are read first, so that anything that is done from here on makes the plan stale.
    records = {run.run_id: run for run in world.ledger.runs() if run.spec.provider == world.provider.name}
    revisions = {run_id: world.ledger.revision(run_id) for run_id in records}
    swept = world.provider.sweep()
    now = world.clock.now()
    runs = (replace(seen, bills_when_off=bills_when_off) for seen in _runs_seen(world, records, revisions, swept))
    planned = [plan_reaping(seen, now, everyone=everyone) for seen in _with_reports(world, tuple(runs), now)]
    return Survey(
        reapings=tuple(reaping for reaping in planned if reaping.findings),
        kept=tuple(left for left in swept.leftovers if left.kept),
        unseen=swept.unseen,
    )


def reap(world: World, reaping: Reaping, events: Events) -> None:
    """End what the survey found of one run; anything that has ended since then is no error.

    Raises:
        ConflictError: another command is acting on the run, or has acted on it since the survey.
        StillBillingError: the provider hasn't confirmed an end in time.
    """
    if reaping.seen.record is None:
        _end_by_tags(world, reaping)
        if reaping.closes:
            # Another computer's run: this ledger has no run that an intent could belong to.
            world.provider.release(reaping.seen.run_id)
    elif reaping.seen.busy and reaping.ends:
        # Whoever holds the run's lock will find its machine gone, and settle the ledger.
        _end_by_tags(world, reaping)
    else:
        _reap_own(world, reaping, reaping.seen.record, events)


def _reap_own(world: World, reaping: Reaping, record: RunRecord, events: Events) -> None:
    """End it like a teardown: under the run's lock, and with an intent before each end."""
    run_id = record.run_id
    with world.ledger.lock(run_id, wait=LOOK_WAIT):
        if world.ledger.revision(run_id) != reaping.seen.revision:
            raise ConflictError(f"another command has acted on run {run_id} since it was looked at")
        reconcile(world, run_id)
        _note_outcomes(world, reaping)
        performer = Performer(record.spec, world, events)
        if reaping.ends:
            ends = [DestroyMachine(machine_id=machine.id, leaves_results=True) for machine in reaping.ends]
            performer.perform_together(ends)
        if reaping.closes:
            close_run(world, run_id)
        if reaping.closes and not reaping.seen.is_live:
            # close_run releases nothing of a run that was closed already.
            release_run(world, run_id)


def _note_outcomes(world: World, reaping: Reaping) -> None:
    """Record how the command ended, because this computer may not be able to read the machine's last upload."""
    for report in head_reports(reaping.seen.machines, reaping.seen.reports.values()):
        if report.command.state.is_over:
            note_outcome(world, reaping.seen.run_id, report.command)


def _end_by_tags(world: World, reaping: Reaping) -> None:
    """End another computer's machines by their tags alone; this ledger has no entry of them."""
    for machine in reaping.ends:
        world.provider.destroy(machine.id)
    for machine in reaping.ends:
        await_end(world, machine)


def _runs_seen(
    world: World, records: dict[str, RunRecord], revisions: dict[str, int], swept: Sweep
) -> Sequence[RunSeen]:
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
            deadlines_at=(*seen.deadlines_at, *(machine.deadline_at for machine in machines[seen.run_id])),
            revision=revisions.get(seen.run_id, 0),
        )
        for seen in runs
    ]


def _with_reports(world: World, runs: Sequence[RunSeen], now: datetime) -> Sequence[RunSeen]:
    """If machines can't end themselves, ask those of own runs whether their commands are over."""
    if world.provider.ends_by_itself:
        return runs
    own = [seen for seen in runs if seen.record is not None and seen.is_live and seen.record.spec.job.tasks]
    machines = [each for seen in own if not seen.busy for each in seen.machines if now < each.deadline_at]
    answers = ask_each([(world, machine) for machine in machines])
    reports = {answer.report.machine: answer.report for answer in answers if answer.report is not None}
    return [
        replace(seen, reports={each.id: reports[each.id] for each in seen.machines if each.id in reports})
        for seen in runs
    ]


def _see(world: World, run_id: str, record: RunRecord | None) -> RunSeen:
    """Combine the ledger's entries about a run."""
    if record is None:
        return RunSeen(run_id=run_id, provider=world.provider.name)
    intents = world.ledger.intents(run_id)
    return RunSeen(
        run_id=run_id,
        provider=world.provider.name,
        record=record,
        recorded=world.ledger.machines(run_id, live_only=True),
        history=read_history(intents, record.spec.job),
        interrupted=tuple(intent.kind for intent in intents if intent.state is IntentState.OPEN),
        deadlines_at=tuple(machine.deadline_at for machine in world.ledger.machines(run_id)),
        busy=_is_busy(world, run_id),
    )


def _is_busy(world: World, run_id: str) -> bool:
    try:
        with world.ledger.lock(run_id):
            return False
    except ConflictError:
        return True


def read_history(intents: Sequence[Intent], job: Job) -> History:
    """Derive the history of a run's machines; one on which nothing is to run counts as used once it answers."""
    created = {intent.subject for intent in intents if intent.kind == CreateMachine.__name__}
    used = {intent.subject for intent in intents if _is_use(intent)} | idle_machines(intents, job)
    ending = {intent.subject for intent in intents if intent.kind == DestroyMachine.__name__}
    of_runs = (ReleaseRun.__name__, ExtendDeadline.__name__)
    of_machines = [intent for intent in intents if intent.kind not in of_runs]
    return History(
        created=frozenset(created),
        used=frozenset(used),
        ending=frozenset(ending),
        last_was_end=bool(of_machines) and of_machines[-1].kind == DestroyMachine.__name__,
    )


def _is_use(intent: Intent) -> bool:
    if intent.kind == CreateMachine.__name__:
        refused = intent.state is IntentState.FAILED
        return not refused and decode_json(intent.payload, CreateMachine).starts
    return intent.kind == StartCommand.__name__
