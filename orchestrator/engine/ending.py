"""Ends a machine: once its results are safe, and until the provider confirms that it is gone."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.errors import StillBillingError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.report import Shipped
from orchestrator.core.units import format_duration
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.observe import ask
from orchestrator.engine.waiting import wait_for
from orchestrator.engine.world import World

_SHIPMENT = timedelta(minutes=10)
_END = timedelta(minutes=5)
_POLL = timedelta(milliseconds=100)


def end_machine(world: World, machine: Machine, events: Events) -> str:
    """Destroy a machine, and stop its meter in the ledger when it is gone.

    Raises:
        StillBillingError: the provider hasn't confirmed its end in time.
    """
    _await_shipment(world, machine, events)
    world.provider.destroy(machine.id)
    await_end(world, machine)
    world.ledger.end_machine(machine.id, world.clock.now())
    if machine.address is not None:
        world.connector.forget(machine.address)
    return "gone"


def await_end(world: World, machine: Machine) -> None:
    """Wait until the provider confirms that a machine is gone, asking for its end again where it seems to live.

    Raises:
        StillBillingError: it hasn't in time.
    """
    gone = wait_for(lambda: _is_gone(world, machine.id) or None, _END, world.clock)
    if gone is None:
        raise StillBillingError(
            f"machine {machine.id} may still be billing",
            why=f"the provider hasn't confirmed its end within {format_duration(_END)}",
            fix=f"try `kedge teardown {machine.run_id}` again; look at the provider's own console",
        )


def _await_shipment(world: World, machine: Machine, events: Events) -> None:
    """Wait until the agent has copied the end of the run to the store: what isn't there ends with the machine."""
    give_up_at = world.clock.now() + _SHIPMENT
    while (report := ask(world, machine)) is not None and world.store is not None:
        shipped = report.shipped or Shipped()
        if not report.command.state.is_over or shipped.time >= report.command.since:
            return
        if shipped.error or world.clock.now() > give_up_at:
            events(Remark(text=f"the object store lacks the end of the run: {shipped.error or 'too slow'}"))
            return
        world.clock.sleep(_POLL)


def _is_gone(world: World, machine_id: str) -> bool:
    """Look, and ask again: a provider may not have known of a young machine when it was asked first."""
    machine = world.provider.describe(machine_id)
    if machine is not None and machine.state is not MachineState.ENDING:
        world.provider.destroy(machine_id)
    return machine is None
