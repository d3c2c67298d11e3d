"""Observes a run before it is planned: its machines, code, results, and the offers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from orchestrator.core.actions import AwaitMachine, CreateMachine, StartCommand
from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.job import Job, LaunchSpec, StartFrom
from orchestrator.core.ledger import Intent, IntentState
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineState, head_of, newest_gang
from orchestrator.core.modes import folders_of
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Observed, machines_left, usable_machines
from orchestrator.core.planning.price import SHORTEST
from orchestrator.core.planning.tasks import tasks_on
from orchestrator.core.protocol.report import Command, MachineReport, RunState
from orchestrator.core.transfers import LastUpload
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.structs import decode_json
from orchestrator.engine.observing.modes import hide_other_mode
from orchestrator.engine.observing.questions import ask, ask_each
from orchestrator.engine.observing.uploads import last_upload_of, read_uploads
from orchestrator.engine.world import World


def observe_run(
    world: World, spec: LaunchSpec, *, code: bool = True, offers: bool = True, avoided: Collection[Offer] = ()
) -> Observed:
    """Observe a run's machines, the laptop's code, and what is for sale.

    A run that hasn't begun has no machine and no results, so its provider isn't asked for them. A plan therefore needs
    no account if the offers come from a snapshot.

    Args:
        world: the run's ports.
        spec: the run.
        code: read the laptop's code.
        offers: list what is for sale, if the run lacks a machine.
        avoided: offers that turned out to be unfit: the machines that are left of several aren't completed from them.
    """
    now = world.clock.now()
    revision = world.ledger.revision(spec.run_id)
    has_begun = world.ledger.run(spec.run_id) is not None
    machines = find_machines(world, spec.run_id) if has_begun else ()
    seen = ask_machines(world, machines, spec.job.num_nodes)
    reports = tuple(hide_other_mode(report, spec) for report in seen)
    usable = usable_machines(machines, reports, spec.job.num_nodes)
    source = world.code_source(spec.job) if code else None
    lacks = offers and not usable
    left = machines_left(machines, reports) if spec.job.num_nodes > 1 else ()
    like_left = _find_like_left(world, spec, left, avoided) if lacks and left else ()
    return Observed(
        now=now,
        offers=tuple(world.provider.offers(spec.resources)) if lacks and not like_left else (),
        like_left=like_left,
        outdated=_find_outdated(world, spec, usable) if spec.job.num_nodes > 1 else (),
        machines=machines,
        machines_before=_machines_before(world, spec.run_id, machines),
        report=next(iter(head_reports(machines, reports)), None),
        reports=reports,
        head_before=_head_before(world, spec),
        code=source.summary() if source else None,
        spent_usd=spent_usd(world.ledger.rentals(spec.run_id), now),
        machine_type=_machine_type(world, spec, machines),
        usual_durations=world.ledger.usual_durations(spec.job),
        usual_later=tuple(world.ledger.usual_durations(job) for job in spec.later),
        other_mode=next((report.command.state for report in seen if report.sequence != spec.sequence), None),
        offers_basis=world.provider.offers_basis,
        can_start_at_boot=world.provider.can_start_at_boot,
        secret_place=_secret_place(world, spec) if not usable else "",
        keeps_results=world.store is not None,
        ends_by_itself=world.provider.ends_by_itself,
        caveats=(*world.provider.caveats, *world.store_caveats),
        has_results=has_begun and world.has_results(spec.run_id) and _has_uploaded(world, spec),
        outcome=_last_outcome(world, spec) if has_begun else None,
        done=_find_done(world, spec) if has_begun else (),
        revision=revision,
    )


def _machine_type(world: World, spec: LaunchSpec, machines: Sequence[Machine]) -> str:
    offer = rented_offer(world, spec.run_id, head_of(machines).id) if machines else None
    return offer.instance_type if offer is not None else ""


def find_machines(world: World, run_id: str) -> tuple[Machine, ...]:
    """List a run's machines at its provider."""
    return tuple(machine for machine in world.provider.machines() if machine.run_id == run_id)


def ask_machines(world: World, machines: Sequence[Machine], num_nodes: int) -> tuple[MachineReport, ...]:
    """Request reports from a run's machines; return those of the machines that answer, the head's first.

    Of a run with one machine, only the first that answers is asked, usable ones first.
    """
    in_turn = sorted(machines, key=lambda machine: (machine.state is MachineState.UNKNOWN, machine.rank))
    if num_nodes > 1:
        answers = ask_each([(world, machine) for machine in in_turn])
        return tuple(answer.report for answer in answers if answer.report is not None)
    first = next((seen for machine in in_turn if (seen := ask(world, machine))), None)
    return (first,) if first is not None else ()


def head_reports(machines: Iterable[Machine], reports: Iterable[MachineReport]) -> tuple[MachineReport, ...]:
    """Return the reports of a run's heads; one at most, unless the run still has an earlier one."""
    heads = {machine.id for machine in machines if not machine.rank}
    return tuple(report for report in reports if report.machine in heads)


def why_ended(world: World, machine_id: str) -> MachineEnd | None:
    """Return what has ended a machine, or is ending it; None if the provider doesn't know or doesn't answer."""
    try:
        return world.provider.why_ended(machine_id)
    except KedgeError:
        return None


def rented_offer(world: World, run_id: str, machine_id: str) -> Offer | None:
    """Return the offer of the last request for a machine, whoever made it; None if none is recorded."""
    creation = last_creation(world, run_id, machine_id)
    return next(iter(creation.offers), None) if creation is not None else None


def last_creation(world: World, run_id: str, machine_id: str) -> CreateMachine | None:
    """Return the last recorded creation of a machine, with the one offer that was requested; None if there is none."""
    asked = [
        each
        for each in world.ledger.intents(run_id)
        if each.subject == machine_id and each.kind == CreateMachine.__name__
    ]
    return decode_json(asked[-1].payload, CreateMachine) if asked else None


def never_booted(world: World, run_id: str) -> tuple[Machine, ...]:
    """List the live machines of a run of which no command has seen the end of their boot: they have no results.

    A command that died may have seen it without recording that: what was started on a machine counts, too.
    """
    booted = {each.subject for each in world.ledger.intents(run_id) if _was_awaited(each) or _is_start(each)}
    return tuple(each for each in world.ledger.machines(run_id, live_only=True) if each.id not in booted)


def idle_machines(intents: Iterable[Intent], job: Job) -> set[str]:
    """Name the machines that have booted, and on which nothing is to run: other machines run what isn't done yet."""
    known = tuple(intents)
    starts = (each for each in reversed(known) if _is_start(each))
    done = next((decode_json(each.payload, StartCommand).done for each in starts), ())
    ranks = {
        each.subject: decode_json(each.payload, CreateMachine).rank
        for each in known
        if each.kind == CreateMachine.__name__
    }
    return {
        each.subject
        for each in known
        if _was_awaited(each) and all(task.name in done for task in tasks_on(job, ranks.get(each.subject, 0)))
    }


def _was_awaited(intent: Intent) -> bool:
    return intent.kind == AwaitMachine.__name__ and intent.state is IntentState.DONE


def _is_start(intent: Intent) -> bool:
    return intent.kind == StartCommand.__name__


def find_failed_offer(world: World, run_id: str, there: tuple[Machine, ...]) -> Offer | None:
    """Return the offer of the run's latest machines if its provider couldn't start one; otherwise None.

    Args:
        world: the run's ports.
        run_id: the run; its ledger was reconciled before.
        there: its machines at the provider.
    """
    ending = {each.id for each in there if each.state is MachineState.ENDING}
    for latest in newest_gang(world.ledger.machines(run_id)):
        end = why_ended(world, latest.id) if latest.id in ending else latest.end
        if end is not None and end.by is EndedBy.START:
            return rented_offer(world, run_id, latest.id)
    return None


def latest_command(world: World, run_id: str) -> Command | None:
    """Return the command's state that the run's latest head uploaded; None if only earlier machines uploaded one."""
    last = latest_upload(world, run_id)
    return last.command if last else None


def latest_upload(world: World, run_id: str) -> LastUpload | None:
    """Return the last upload of the run's latest head; None if it has uploaded nothing, or only an earlier mode."""
    machines = world.ledger.machines(run_id)
    last = last_upload_of(world, run_id, head_of(machines).id) if machines else None
    record = world.ledger.run(run_id)
    is_earlier = last is not None and record is not None and last.sequence < record.spec.sequence
    return None if is_earlier else last


def _find_outdated(world: World, spec: LaunchSpec, machines: Sequence[Machine]) -> tuple[str, ...]:
    """Name the machines that were started before another one of these was created."""
    names = {machine.id for machine in machines}
    started: set[str] = set()
    outdated: set[str] = set()
    for intent in world.ledger.intents(spec.run_id):
        if intent.kind == CreateMachine.__name__ and intent.subject in names:
            outdated |= started
        elif intent.kind == StartCommand.__name__:
            started.add(intent.subject)
            outdated.discard(intent.subject)
    return tuple(sorted(outdated & names))


def _find_like_left(
    world: World, spec: LaunchSpec, left: Sequence[Machine], avoided: Collection[Offer]
) -> tuple[Offer, ...]:
    """List what is for sale like the machines that are left, as many as are missing; nothing if these end soon."""
    rented = rented_offer(world, spec.run_id, left[0].id)
    ends_soon = min(machine.deadline_at for machine in left) - world.clock.now() < SHORTEST
    if rented is None or ends_soon or any(rented.is_like(offer) for offer in avoided):
        return ()
    missing = replace(spec.resources, num_nodes=spec.job.num_nodes - len(left))
    try:
        found = world.provider.offers(missing)
    except NoCapacityError:
        return ()
    return tuple(offer for offer in found if offer.is_like(rented) and offer.spot == rented.spot)


def _secret_place(world: World, spec: LaunchSpec) -> str:
    """Return where the run's next machine would read its secrets; empty if it doesn't start by itself with some."""
    job, store = spec.job, world.secret_store
    wanted = spec.from_shell and job.start is StartFrom.BOOT and world.provider.can_start_at_boot
    return store.place(spec.run_id) if wanted and store is not None else ""


def _has_uploaded(world: World, spec: LaunchSpec) -> bool:
    """Tell whether the object store has something of the present mode; a store that can't be read may have it."""
    if not spec.sequence:
        return True
    found = read_uploads(world, spec.run_id)
    return bool(found.problem) or (found.last is not None and found.last.sequence == spec.sequence)


def _last_outcome(world: World, spec: LaunchSpec) -> RunState | None:
    """Return how the present mode ended: from the ledger, which may know more, else from the object store."""
    record = world.ledger.run(spec.run_id)
    if record is not None and record.spec.sequence == spec.sequence and record.outcome == RunState.SUCCEEDED:
        return RunState.SUCCEEDED
    last = read_uploads(world, spec.run_id).last
    return last.command.state if last and last.sequence == spec.sequence else None


def _find_done(world: World, spec: LaunchSpec) -> tuple[str, ...]:
    """Name the tasks that have succeeded, according to the object store."""
    if not any(task.name for task in spec.job.tasks):
        return ()
    last = read_uploads(world, spec.run_id).last
    uploaded = last.tasks if last else {}
    done = {key for key, command in uploaded.items() if command.state is RunState.SUCCEEDED}
    keys = {name: folder.key for name, folder in folders_of(spec).items()}
    return tuple(name for name, key in keys.items() if key in done)


def _head_before(world: World, spec: LaunchSpec) -> str:
    machines = world.ledger.machines(spec.run_id) if spec.job.num_nodes > 1 else ()
    return head_of(machines).id if machines else ""


def _machines_before(world: World, run_id: str, there: tuple[Machine, ...]) -> int:
    """Return the highest number of all machines that the run has had."""
    names = {intent.subject for intent in world.ledger.intents(run_id)} | {machine.id for machine in there}
    names |= {machine.id for machine in world.ledger.machines(run_id)}
    numbers = [name.removeprefix(f"{run_id}-m") for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=0)
