"""Ends a machine: once its results are safe, and until the provider confirms that it is gone."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.actions import LAST_UPLOAD
from orchestrator.core.errors import StillBillingError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.report import MachineReport, Shipped
from orchestrator.core.units import format_duration
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.observe import ask
from orchestrator.engine.waiting import wait_for
from orchestrator.engine.world import World

_SHIPMENT = timedelta(minutes=10)
_SILENCE = timedelta(minutes=1)
"""A watch beats every second: one that hasn't for so long is dead, and uploads nothing any more."""

_SILENCE_SOON = timedelta(seconds=15)
"""Where the results are at home already, or nobody wants them, only a `resume` misses what the store lacks."""

_END = timedelta(minutes=5)
_POLL = timedelta(milliseconds=100)


def end_machine(world: World, machine: Machine, events: Events, *, fetched: bool = False, hurried: bool = False) -> str:
    """Destroy a machine, and stop its meter in the ledger when it is gone.

    What the machine says delays that, by ten minutes at most, and never prevents it.

    Args:
        world: the run's ports.
        machine: which one.
        events: told where the end of the run was not copied off the machine.
        fetched: a verified copy of all its results is at home.
        hurried: nobody wants what it hasn't uploaded yet.

    Raises:
        StillBillingError: the provider hasn't confirmed its end in time.
    """
    if why := _await_shipment(world, machine, soon=fetched or hurried):
        at_home = "; a verified copy of the results is at home" if fetched else ""
        events(Remark(text=f"the end of the run was not copied off the machine: {why}{at_home}"))
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


def _await_shipment(world: World, machine: Machine, *, soon: bool) -> str:
    """Wait until the agent has copied the end of the run to the store: what isn't there ends with the machine.

    Each second is paid for, so that nothing waits for an agent that is dead, or that talks nonsense.

    Returns:
        Why the store lacks it; empty where it doesn't, or where nobody knows.
    """
    patience, silence = (LAST_UPLOAD, _SILENCE_SOON) if soon else (_SHIPMENT, _SILENCE)
    give_up_at = world.clock.now() + patience
    while (report := ask(world, machine)) is not None and world.store is not None:
        shipped = report.shipped or Shipped()
        if not report.command.state.is_over or shipped.time >= report.command.since:
            return ""
        too_slow = f"not within {format_duration(patience)}" if world.clock.now() > give_up_at else ""
        if why := shipped.error or _describe_silence(report, silence) or too_slow:
            return why
        world.clock.sleep(_POLL)
    return ""


def _describe_silence(report: MachineReport, limit: timedelta) -> str:
    """Say that the agent's watch is dead; empty where it isn't. Both times are the machine's own.

    One that has never beaten counts from the machine's birth: of a command whose runner died `since` is always now.
    """
    quiet = timedelta(seconds=report.now - (report.heartbeat or report.created))
    return f"its agent has had no heartbeat for {format_duration(quiet)}" if quiet > limit else ""


def _is_gone(world: World, machine_id: str) -> bool:
    """Look, and ask again: a provider may not have known of a young machine when it was asked first."""
    machine = world.provider.describe(machine_id)
    if machine is not None and machine.state is not MachineState.ENDING:
        world.provider.destroy(machine_id)
    return machine is None
