"""Brings the ledger into agreement with the provider, and says where they differed."""

from __future__ import annotations

from datetime import datetime, timedelta

from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import StillBillingError
from orchestrator.core.ledger import IntentState, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.report import Command, RunState
from orchestrator.engine.world import World

_LINGER = timedelta(seconds=150)
"""A machine whose command is over ends itself within this time of its last shipment (core.wire: linger)."""


def reconcile(world: World, run_id: str) -> tuple[str, ...]:
    """Settle a run's open intents and machines by what the provider has; the caller holds the run's lock.

    Returns:
        What differed, one line each.
    """
    there = {machine.id: machine for machine in world.provider.machines() if machine.run_id == run_id}
    findings = (*_settle_intents(world, run_id, there), *_settle_machines(world, run_id, there))
    if there:
        _reopen(world, run_id)
    else:
        _settle_outcome(world, run_id)
    return findings


def differences(world: World, run_id: str) -> tuple[str, ...]:
    """Say where the ledger and the provider differ, and change nothing."""
    there = {machine.id for machine in world.provider.machines() if machine.run_id == run_id}
    known = {machine.id for machine in world.ledger.machines(run_id, live_only=True)}
    where = world.provider.name
    lost = [f"machine {name} is in the ledger but gone at {where}" for name in sorted(known - there)]
    found = [f"machine {name} is at {where} but not in the ledger" for name in sorted(there - known)]
    return (*lost, *found)


def find_strays(world: World) -> tuple[Machine, ...]:
    """List machines at the provider that no live run of the ledger's accounts for."""
    live = {run.run_id for run in world.ledger.runs(live_only=True)}
    return tuple(machine for machine in world.provider.machines() if machine.run_id not in live)


def close_run(world: World, run_id: str) -> None:
    """Close a run in the ledger, once the provider confirms that nothing of it is left.

    Raises:
        StillBillingError: something is.
    """
    reconcile(world, run_id)
    left = world.ledger.machines(run_id, live_only=True)
    if left:
        raise StillBillingError(
            f"run {run_id} can't be closed: {', '.join(machine.id for machine in left)} may still be billing",
            fix=f"end it with `kedge teardown {run_id}`",
        )
    record = world.ledger.run(run_id)
    if record is not None and record.stage is RunStage.LIVE:
        world.ledger.end_run(run_id, world.clock.now())


def note_outcome(world: World, run_id: str, command: Command) -> None:
    """Record the command's state, and for how long the run has had machines."""
    now = world.clock.now()
    took = sum((rental.duration(now) for rental in world.ledger.rentals(run_id)), timedelta(0))
    world.ledger.note_outcome(run_id, command.state, took)


def _settle_intents(world: World, run_id: str, there: dict[str, Machine]) -> tuple[str, ...]:
    findings = []
    now = world.clock.now()
    for intent in world.ledger.open_intents(run_id):
        machine = there.get(intent.subject)
        if intent.kind == CreateMachine.__name__ and machine is not None:
            world.ledger.put_machine(machine)
            world.ledger.settle(intent.id, IntentState.DONE, now, "found at the provider")
            findings.append(f"machine {machine.id} was created by a command that died; it is in the ledger now")
        else:
            world.ledger.settle(intent.id, IntentState.FAILED, now, "interrupted")
            findings.append(f"{intent.kind} of {intent.subject} was interrupted")
    return tuple(findings)


def _settle_machines(world: World, run_id: str, there: dict[str, Machine]) -> tuple[str, ...]:
    findings = []
    known = {machine.id: machine for machine in world.ledger.machines(run_id, live_only=True)}
    for name, machine in known.items():
        if name not in there and world.provider.describe(name) is None:
            world.ledger.end_machine(name, _ended_at(world, machine))
            findings.append(f"machine {name} is gone; it ended without a kedge command")
    for name in sorted(there.keys() - known.keys()):
        world.ledger.put_machine(there[name])
        findings.append(f"machine {name} was not in the ledger; it is now")
    return tuple(findings)


def _ended_at(world: World, machine: Machine) -> datetime:
    """Return when a machine that was found to be gone ended at the latest."""
    latest = min(world.clock.now(), machine.deadline_at)
    shipped_at = world.store.shipped_at(machine.run_id) if world.store else None
    if shipped_at is not None and _last_state(world, machine.run_id) in (RunState.SUCCEEDED, RunState.FAILED):
        latest = min(latest, shipped_at + _LINGER)
    return max(machine.created_at, latest)


def _reopen(world: World, run_id: str) -> None:
    """A run that has a machine is live, whatever the ledger thought."""
    record = world.ledger.run(run_id)
    if record is not None and record.stage is RunStage.ENDED:
        world.ledger.open_run(record.spec, world.clock.now())


def _settle_outcome(world: World, run_id: str) -> None:
    """A run whose machine ended by itself when it was done has left its outcome in the store."""
    record = world.ledger.run(run_id)
    command = world.store.command(run_id) if world.store else None
    if record is None or record.stage is RunStage.ENDED or command is None:
        return
    if command.state in (RunState.SUCCEEDED, RunState.FAILED):
        if record.outcome != command.state:
            note_outcome(world, run_id, command)
        world.ledger.end_run(run_id, world.clock.now())


def _last_state(world: World, run_id: str) -> RunState | None:
    command = world.store.command(run_id) if world.store else None
    return command.state if command else None
