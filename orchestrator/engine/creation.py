"""Rents a machine: one offer after the other, until one can be had."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.wire import BootOrder
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.world import World


def create_machine(world: World, spec: LaunchSpec, action: CreateMachine, boot: BootOrder, events: Events) -> Offer:
    """Create the machine from the first offer that isn't refused, and return that.

    Each attempt has an intent of its own, with its offer alone: `rented_offer` reads it after a command that died.

    Raises:
        NoCapacityError: every offer was refused.
        KedgeError: something else went wrong with one of them; no other is tried, since a machine may exist.
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
        f"no offer for {action.machine_id} could be had",
        why="; ".join(refusals),
        fix="try again later, or allow other types or regions",
    )


def _create_from(world: World, action: CreateMachine, order: MachineOrder) -> None:
    """Create from one offer; only a clear refusal closes the intent, all else is settled by looking."""
    ledger, clock = world.ledger, world.clock
    intent = ledger.intend(order.run_id, action, clock.now())
    try:
        machine = world.provider.create(order)
    except NoCapacityError as refusal:
        ledger.settle(intent, IntentState.FAILED, clock.now(), refusal.what)
        raise
    ledger.put_machine(machine)
    ledger.settle(intent, IntentState.DONE, clock.now())


def _order(world: World, spec: LaunchSpec, action: CreateMachine, offer: Offer, boot: BootOrder) -> MachineOrder:
    resources = spec.resources
    return MachineOrder(
        id=action.machine_id,
        run_id=spec.run_id,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        usd_per_hour=offer.total_usd_per_hour,
        lifetime_seconds=round(action.lifetime.total_seconds()),
        authorized_key=world.authorized_key,
        agent_archive=world.agent_archive(),
        store_url=world.store.url if world.store else "",
        boot=replace(boot, gpus=offer.accelerators.count if offer.accelerators else 0),
        image_id=resources.image_id,
        disk_gib=resources.disk_gib,
        disk_iops=resources.disk_iops,
        disk_mibps=resources.disk_mibps,
        volumes=resources.volumes,
        data=spec.job.data,
        sudo=spec.job.sudo,
        max_usd_per_hour=resources.max_usd_per_hour,
        ssh_from=action.ssh_from or spec.ssh_from,
        site=resources.site,
    )
