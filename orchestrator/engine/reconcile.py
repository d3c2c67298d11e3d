"""Brings the ledger into agreement with the provider, and says where they differed."""

from __future__ import annotations

from datetime import datetime

from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import StillBillingError
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import Machine
from orchestrator.engine.world import World


def reconcile(world: World, run_id: str) -> tuple[str, ...]:
    """Settle a run's open intents and machines by what the provider has; the caller holds the run's lock.

    Returns:
        What differed, one line each.
    """
    there = {machine.id: machine for machine in world.provider.machines() if machine.run_id == run_id}
    return (*_settle_intents(world, run_id, there), *_settle_machines(world, run_id, there))


def differences(world: World, run_id: str) -> tuple[str, ...]:
    """Say where the ledger and the provider differ, and change nothing."""
    there = {machine.id for machine in world.provider.machines() if machine.run_id == run_id}
    known = {machine.id for machine in world.ledger.machines(run_id, live_only=True)}
    where = world.provider.name
    lost = [f"machine {name} is in the ledger but gone at {where}" for name in sorted(known - there)]
    found = [f"machine {name} is at {where} but not in the ledger" for name in sorted(there - known)]
    return (*lost, *found)


def ended_at(machine: Machine, now: datetime) -> datetime:
    """Return when a machine that was found to be gone ended at the latest: its deadline always holds."""
    return max(machine.created_at, min(now, machine.deadline_at))


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
            world.ledger.end_machine(name, ended_at(machine, world.clock.now()))
            findings.append(f"machine {name} is gone; it ended without a kedge command")
    for name in sorted(there.keys() - {machine.id for machine in world.ledger.machines(run_id)}):
        world.ledger.put_machine(there[name])
        findings.append(f"machine {name} was not in the ledger; it is now")
    return tuple(findings)


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
    world.ledger.end_run(run_id, world.clock.now())
