"""Creates a run's machines: tries one offer after the other, until one is available for all of them.

Each machine has an intent, and a request, of its own: its host key, its id and its tags differ from the others'. A
cloud's request for several machines at once (RunInstances with MinCount) gives all the same user-data and tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.core.actions import CreateMachine, DestroyMachine
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, UnfitMachineError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.planning.price import SHORTEST
from orchestrator.core.protocol.wire import BootOrder
from orchestrator.core.values.units import format_duration
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.observing.observe import never_booted
from orchestrator.engine.steps.end_machine import Ending, end_machines
from orchestrator.engine.world import World


def create_machines(world: World, spec: LaunchSpec, action: CreateMachine, boot: BootOrder, events: Events) -> Offer:
    """Create the action's machines from the first offer that isn't refused, and return that offer.

    Each attempt has its own intent with only its machine and its offer, which `rented_offer` reads after a command that
    died.

    Raises:
        NoCapacityError: every offer was refused; no machine was created.
        UnfitMachineError: an offer was refused for some of the machines, or for one that was to join others. Those that
            were created are gone, and so are those that they were to join and that have never booted.
        KedgeError: an offer failed in another way; no other one is tried, because a machine may exist. Machines that
            were created before are gone likewise.
    """
    refusals: list[str] = []
    left = list(action.offers)
    while left:
        offer = left.pop(0)
        made: list[Machine] = []
        try:
            _create_all(world, spec, replace(action, offers=(offer,)), boot, made)
        except NoCapacityError as refusal:
            refusals.append(f"{offer.place} {offer.instance_type}: {refusal.what}")
            events(Remark(text=refusals[-1]))
            ended = _end_part(world, spec, action, made, events)
            if ended or action.joins:
                raise _too_few(spec, action, offer, ended, refusal) from refusal
            left = [other for other in left if not refusal.covers(other)]
        except KedgeError:
            _end_part(world, spec, action, made, events)
            raise
        else:
            return offer
    raise NoCapacityError(
        f"no offer for {action.machine_id} was available",
        why="; ".join(refusals),
        fix="try again later, or allow other types or regions",
    )


def _create_all(world: World, spec: LaunchSpec, action: CreateMachine, boot: BootOrder, made: list[Machine]) -> None:
    """Create all machines from the action's one offer, and add each to those that were made."""
    began = world.clock.now()
    # All have one deadline: that of the first.
    until = min(began + action.lifetime, action.until or datetime.max.replace(tzinfo=UTC))
    for rank, machine_id in enumerate(action.machine_ids, action.rank):
        lifetime = until - world.clock.now() if made or action.until else action.lifetime
        _refuse_over(spec.run_id, lifetime, action)
        one = replace(action, machine_id=machine_id, others=(), rank=rank, lifetime=lifetime)
        made.append(_create_from(world, one, _order(world, spec, one, boot)))


def _refuse_over(run_id: str, lifetime: timedelta, action: CreateMachine) -> None:
    """Refuse to rent a machine for the last moments before a deadline that it doesn't set itself."""
    if action.until is not None and lifetime < min(SHORTEST, action.lifetime / 2):
        raise BadRequestError(
            f"the time of run {run_id} is over",
            why=f"its machines end at {action.until:%F %H:%M} UTC, however late they are rented",
            fix=f"give it more with `kedge resume {run_id} --ttl {format_duration(timedelta(hours=1))}`",
        )


def _end_part(
    world: World, spec: LaunchSpec, action: CreateMachine, made: Sequence[Machine], events: Events
) -> tuple[Machine, ...]:
    """End the machines that were just created, and those that they were to join and that have never booted.

    Raises:
        StillBillingError: the provider hasn't confirmed an end in time.
    """
    part = (*(each for each in never_booted(world, spec.run_id) if each.id in action.joins), *made)
    ends = [DestroyMachine(machine_id=machine.id, leaves_results=True) for machine in part]
    if part:
        endings = [Ending(machine=machine, action=end) for machine, end in zip(part, ends, strict=True)]
        end_machines(world, spec.run_id, endings, events)
    return part


def _too_few(
    spec: LaunchSpec, action: CreateMachine, offer: Offer, ended: Sequence[Machine], refusal: NoCapacityError
) -> UnfitMachineError:
    has = f"{len(ended)} of {spec.job.num_nodes}" if not action.joins else "no more"
    err = UnfitMachineError(
        f"{offer.place} {offer.instance_type} has {has} machines",
        why=refusal.what,
        fix="try again later, or allow other types or regions",
    )
    err.offer, err.machines = offer, len(ended)
    err.covered = tuple(other for other in action.offers if refusal.covers(other))
    return err


def _create_from(world: World, action: CreateMachine, order: MachineOrder) -> Machine:
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
    return machine


def _order(world: World, spec: LaunchSpec, action: CreateMachine, boot: BootOrder) -> MachineOrder:
    (offer,) = action.offers
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
        rank=action.rank,
    )
