"""Reconciles the ledger with the provider, and reports the differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from orchestrator.core.actions import CreateMachine, DestroyMachine, ExtendDeadline, ReleaseRun
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.job import AtEnd
from orchestrator.core.ledger import Intent, IntentState, RunStage
from orchestrator.core.machine import EndedBy, Machine, MachineState, newest_gang
from orchestrator.core.policy.recovery import describe_end, is_loss
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.core.values.cost import clip
from orchestrator.core.values.structs import decode_json
from orchestrator.engine.extending import settle_extension
from orchestrator.engine.journal import journaled
from orchestrator.engine.observing.modes import record_uploaded_modes
from orchestrator.engine.observing.observe import latest_command, why_ended
from orchestrator.engine.observing.uploads import last_upload_of, read_uploads
from orchestrator.engine.world import World

_SILENCE = timedelta(minutes=10)
"""A live machine uploads far more often than this. A machine that is gone is assumed to have ended, at the latest, this
long after its last upload."""

_LINGER = timedelta(seconds=150)
"""The same for a machine whose command had ended: it ends itself within this time (core.protocol.wire: linger)."""


def reconcile(world: World, run_id: str, listed: Iterable[Machine] | None = None) -> tuple[str, ...]:
    """Settle a run's open intents and machines according to the provider.

    Args:
        world: the run's ports.
        run_id: the run; the caller holds its lock.
        listed: the provider's machines, listed after that lock was taken; None lists them now.

    Returns:
        The differences, one line each.
    """
    seen = world.provider.machines() if listed is None else listed
    there = {machine.id: machine for machine in seen if machine.run_id == run_id}
    findings = (*_settle_intents(world, run_id, there), *_settle_machines(world, run_id, there))
    if there:
        _mark_live(world, run_id)
        return findings
    return (*findings, *_settle_outcome(world, run_id))


def differences(world: World, run_id: str, listed: Iterable[Machine]) -> tuple[str, ...]:
    """List the differences between ledger and provider, without changing anything."""
    there = {machine.id for machine in listed if machine.run_id == run_id}
    known = {machine.id for machine in world.ledger.machines(run_id, live_only=True)}
    where = world.provider.name
    lost = [f"machine {name} is in the ledger but gone at {where}" for name in sorted(known - there)]
    found = [f"machine {name} is at {where} but not in the ledger" for name in sorted(there - known)]
    return (*lost, *found)


def close_run(world: World, run_id: str) -> tuple[str, ...]:
    """Close a run in the ledger, once the provider confirms that nothing of it is left.

    Returns:
        What was kept besides machines, one line each.

    Raises:
        StillBillingError: something is left.
    """
    found = reconcile(world, run_id)
    left = world.ledger.machines(run_id, live_only=True)
    if left:
        raise StillBillingError(
            f"run {run_id} can't be closed: {', '.join(machine.id for machine in left)} may still be billing",
            fix=f"end it with `kedge teardown {run_id}`",
        )
    record = world.ledger.run(run_id)
    is_live = record is not None and record.stage is RunStage.LIVE
    # Reconciling may have closed a run that is over.
    return _end_run(world, run_id) if is_live else _kept(found)


def release_run(world: World, run_id: str) -> tuple[str, ...]:
    """Remove what the provider has created for a run without machines; the ledger knows the run.

    Returns:
        What was done, one line each; a line about something that stays contains "kept".
    """
    with journaled(world.ledger, world.clock, run_id, ReleaseRun(run_id=run_id)):
        return tuple(world.provider.release(run_id))


def note_outcome(world: World, run_id: str, command: Command) -> None:
    """Record the command's state, and how long the run has had machines in its mode; of several, the head counts."""
    now = world.clock.now()
    record = world.ledger.run(run_id)
    others = {machine.id for machine in world.ledger.machines(run_id) if machine.rank}
    rentals = (rental for rental in world.ledger.rentals(run_id) if rental.machine_id not in others)
    parts = clip(tuple(rentals), record.spec.mode_since if record else None, now)
    world.ledger.note_outcome(run_id, command.state, sum((part.duration(now) for part in parts), timedelta(0)))


def _settle_intents(world: World, run_id: str, there: dict[str, Machine]) -> tuple[str, ...]:
    findings = []
    now = world.clock.now()
    for intent in world.ledger.open_intents(run_id):
        machine = there.get(intent.subject)
        if intent.kind == CreateMachine.__name__ and machine is not None:
            findings += _record_found(
                world, machine, f"machine {machine.id} was created by a command that died", intent
            )
        elif intent.kind == CreateMachine.__name__ and (lived := _find_ended_machine(world, intent)) is not None:
            world.ledger.put_machine(lived)
            world.ledger.record_machine_end(lived.id, _ended_at(world, lived))
            world.ledger.close_intent(intent.id, IntentState.DONE, now, "lived, and ended by itself")
            findings.append(f"machine {lived.id} was created by a command that died, and has ended by itself since")
        elif intent.kind == ExtendDeadline.__name__:
            findings.append(settle_extension(world, intent, there))
        else:
            world.ledger.close_intent(intent.id, IntentState.FAILED, now, "interrupted")
            findings.append(f"{intent.kind} of {intent.subject} was interrupted")
    return tuple(findings)


def _find_ended_machine(world: World, intent: Intent) -> Machine | None:
    """Return the machine of an interrupted creation if it has uploaded anything; otherwise None."""
    if last_upload_of(world, intent.run_id, intent.subject) is None:
        return None
    action = decode_json(intent.payload, CreateMachine)
    offer = action.offers[0]
    return Machine(
        id=intent.subject,
        run_id=intent.run_id,
        provider=world.provider.name,
        provider_id="",
        state=MachineState.GONE,
        root="",
        created_at=intent.at,
        deadline_at=intent.at + action.lifetime,
        usd_per_hour=offer.total_usd_per_hour,
        rank=action.rank,
    )


def _settle_machines(world: World, run_id: str, there: dict[str, Machine]) -> tuple[str, ...]:
    findings = []
    known = {machine.id: machine for machine in world.ledger.machines(run_id, live_only=True)}
    for name, machine in known.items():
        if name in there:
            findings += _note_loss(world, machine, there[name])
        elif world.provider.describe(name) is None:
            findings.append(_record_end(world, machine))
    for name in sorted(there.keys() - known.keys()):
        findings += _record_found(world, there[name], f"machine {name} was not in the ledger")
    return tuple(findings)


def _note_loss(world: World, machine: Machine, seen: Machine) -> list[str]:
    """Record that the provider takes a machine away: it may be shutting down for minutes, and somebody may resume."""
    if seen.state is not MachineState.ENDING or machine.end is not None or _was_asked(world, machine):
        return []
    end = why_ended(world, machine.id)
    if end is None or end.by is not EndedBy.PROVIDER:
        return []
    ending = replace(machine, end=end)
    world.ledger.put_machine(ending)
    return [_describe_loss(world, ending, "ending")]


def _record_end(world: World, machine: Machine) -> str:
    """Record that a machine is gone, and how it ended, because its provider forgets that within the hour."""
    ended_at = _ended_at(world, machine)
    asked = machine.end is None and _was_asked(world, machine)
    ended = replace(machine, end=None if asked else machine.end or why_ended(world, machine.id))
    world.ledger.put_machine(ended)
    world.ledger.record_machine_end(machine.id, ended_at)
    if asked:
        return f"machine {machine.id} is gone: an interrupted command had requested its end"
    return _describe_loss(world, ended)


def find_last_loss(world: World, run_id: str) -> str:
    """Describe how one of the run's last machines ended or is ending; empty if kedge ended them, or if they live."""
    live = {machine.id for machine in world.ledger.machines(run_id, live_only=True)}
    for machine in newest_gang(world.ledger.machines(run_id)):
        is_live = machine.id in live
        if not _was_asked(world, machine) and not (is_live and machine.end is None):
            return _describe_loss(world, machine, "ending" if is_live else "gone")
    return ""


def _was_asked(world: World, machine: Machine) -> bool:
    return any(
        intent.kind == DestroyMachine.__name__ and intent.subject == machine.id
        for intent in world.ledger.intents(machine.run_id)
    )


def _describe_loss(world: World, machine: Machine, stage: str = "gone") -> str:
    if machine.end is None:
        return f"machine {machine.id} is gone; it ended without a kedge command"
    return f"machine {machine.id} is {stage}: {describe_end(world.provider.name, machine.end)}"


def _record_found(world: World, machine: Machine, found: str, intent: Intent | None = None) -> list[str]:
    """Record a machine that was found, and guard it; its intent stays open until both are done."""
    unguarded = _guard(world, machine)
    world.ledger.put_machine(machine)
    if intent is not None and not unguarded:
        world.ledger.close_intent(intent.id, IntentState.DONE, world.clock.now(), "found at the provider")
    return [f"{found}; it is in the ledger now", *unguarded]


def _guard(world: World, machine: Machine) -> list[str]:
    """Have the provider guard a machine; a failure becomes a finding, so that the machine can still be ended."""
    try:
        world.provider.guard(machine.id)
    except KedgeError as err:
        return [f"machine {machine.id} could not be completed: {in_one_line(err)}"]
    return []


def in_one_line(err: KedgeError) -> str:
    """Say what failed, and why."""
    return "; ".join(filter(None, (err.what, err.why)))


def _ended_at(world: World, machine: Machine) -> datetime:
    """Return the latest instant at which a machine that is gone can have ended."""
    latest = min(world.clock.now(), machine.deadline_at)
    last = last_upload_of(world, machine.run_id, machine.id, rank=machine.rank)
    if last is not None:
        is_done = last.command.state in (RunState.SUCCEEDED, RunState.FAILED)
        latest = min(latest, last.at + (_LINGER if is_done else _SILENCE))
    return max(machine.created_at, latest)


def _mark_live(world: World, run_id: str) -> None:
    """Mark a run that has a machine as live, whatever the ledger says."""
    record = world.ledger.run(run_id)
    if record is not None and record.stage is RunStage.ENDED:
        world.ledger.open_run(record.spec, world.clock.now())


def _settle_outcome(world: World, run_id: str) -> tuple[str, ...]:
    """Close a run that is over and has no machines; leave it to `teardown` if that would delete or copy its data."""
    record_uploaded_modes(world, run_id)
    record = world.ledger.run(run_id)
    command = _last_word(world, run_id)
    if record is None or record.stage is RunStage.ENDED:
        return ()
    if command is None:
        problem = read_uploads(world, run_id).problem
        return (problem,) if problem else ()
    if record.outcome != command.state:
        note_outcome(world, run_id, command)
    if any(volume.at_end is not AtEnd.KEEP for volume in record.spec.job.resources.volumes):
        return (f"`kedge teardown {run_id}` ends its data volumes, as `at_end` says",)
    try:
        kept = _end_run(world, run_id)
    except KedgeError as err:
        return (f"not closed yet: {in_one_line(err)}",)
    return kept if command.state is not RunState.STOPPED else (*kept, f"run {run_id} is closed: {command.reason}")


def _last_word(world: World, run_id: str) -> Command | None:
    """Return how a run without machines ended for good; None if it may continue.

    A machine that ended itself after its command has left the outcome in the store. If somebody ended the machine in
    the provider's console, the run doesn't get another one.
    """
    command = latest_command(world, run_id)
    record = world.ledger.run(run_id)
    goes_on = command is not None and command.lost_peer and record is not None and record.spec.recover
    if command is not None and command.state in (RunState.SUCCEEDED, RunState.FAILED) and not goes_on:
        return command
    ends = (machine.end for machine in newest_gang(world.ledger.machines(run_id)) if machine.end is not None)
    if not any(end.by is EndedBy.SOMEBODY and not is_loss(command, end) for end in ends):
        return None
    return Command(state=RunState.STOPPED, reason=f"somebody ended its machine at {world.provider.name}")


def _end_run(world: World, run_id: str) -> tuple[str, ...]:
    """Close a run without machines, once the provider has removed what it created for it."""
    lines = release_run(world, run_id)
    world.ledger.end_run(run_id, world.clock.now())
    return _kept(lines)


def _kept(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line for line in lines if line.startswith("kept"))
