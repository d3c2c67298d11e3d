"""Creates a machine: tries one offer after the other, until one is available."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.protocol.wire import BootOrder
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.world import World


def create_machine(world: World, spec: LaunchSpec, action: CreateMachine, boot: BootOrder, events: Events) -> Offer:
    """Create the machine from the first offer that isn't refused, and return that offer.

    Each attempt has its own intent with only its offer, which `rented_offer` reads after a command that died.

    Raises:
        NoCapacityError: every offer was refused.
        KedgeError: an offer failed in another way; no other one is tried, because a machine may exist.
    """
    refusals: list[str] = []
    left = list(action.offers)
    while left:
        offer = left.pop(0)
        try:
            _create_from(world, replace(action, offers=(offer,)), _order(world, spec, action, offer, boot))
        except NoCapacityError as refusal:
            refusals.append(f"{offer.place} {offer.instance_type}: {refusal.what}")
            events(Remark(text=refusals[-1]))
            left = [other for other in left if not refusal.covers(other)]
        else:
            return offer
    raise NoCapacityError(
        f"no offer for {action.machine_id} was available",
        why="; ".join(refusals),
        fix="try again later, or allow other types or regions",
    )


def _create_from(world: World, action: CreateMachine, order: MachineOrder) -> None:
    """Create from one offer; a clear refusal closes the intent, everything else is left to reconciling."""
    ledger, clock = world.ledger, world.clock
    intent = ledger.intend(order.run_id, action, clock.now())
    try:
        machine = world.provider.create(order)
    except NoCapacityError as refusal:
        ledger.close_intent(intent, IntentState.FAILED, clock.now(), refusal.what)
        raise
    ledger.put_machine(machine)
    ledger.close_intent(intent, IntentState.DONE, clock.now())


def _order(world: World, spec: LaunchSpec, action: CreateMachine, offer: Offer, boot: BootOrder) -> MachineOrder:
    return MachineOrder(
        id=action.machine_id,
        run_id=spec.run_id,
        offer=offer,
        lifetime_seconds=round(action.lifetime.total_seconds()),
        authorized_key=world.authorized_key,
        agent_archive=world.agent_archive(),
        store_url=world.store.url if world.store else "",
        boot=replace(boot, gpus=offer.accelerators.count if offer.accelerators else 0),
        resources=spec.resources,
        data=spec.job.data,
        sudo=spec.job.sudo,
        ssh_from=action.ssh_from or spec.ssh_from,
    )
