"""Ends a machine: waits for its last upload, destroys it, and waits until the provider confirms its end."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.actions import LAST_UPLOAD
from orchestrator.core.errors import StillBillingError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.protocol.report import MachineReport, UploadState
from orchestrator.core.values.units import format_duration
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.observing.observe import ask
from orchestrator.engine.world import World

_UPLOAD_WAIT = timedelta(minutes=10)
"""How long to wait for the last upload of results that somebody needs."""

_SILENCE = timedelta(minutes=1)
"""The agent's watch has a heartbeat every second; after this long without one it is dead, and uploads nothing."""

_SHORT_SILENCE = timedelta(seconds=15)
"""The shorter wait if the results are on the laptop already, or unwanted: only a `resume` would need the rest."""

_END = timedelta(minutes=5)
_POLL = timedelta(milliseconds=100)
_RARELY = timedelta(seconds=3)


def end_machine(
    world: World, machine: Machine, events: Events, *, fetched: bool = False, leaves_results: bool = False
) -> str:
    """Destroy a machine, and stop its bill in the ledger when it is gone.

    The machine can delay that, by ten minutes at most, but can't prevent it.

    Args:
        world: the run's ports.
        machine: the machine to end.
        events: receives a remark if the last results were not uploaded.
        fetched: a verified copy of all its results is on the laptop.
        leaves_results: nobody needs what it hasn't uploaded yet.

    Raises:
        StillBillingError: the provider hasn't confirmed its end in time.
    """
    if why := _await_last_upload(world, machine, briefly=fetched or leaves_results):
        at_home = "; a verified copy of the results is on this computer" if fetched else ""
        events(Remark(text=f"the last results were not uploaded: {why}{at_home}"))
    world.provider.destroy(machine.id)
    await_end(world, machine)
    world.ledger.record_machine_end(machine.id, world.clock.now())
    if machine.address is not None:
        world.connector.forget(machine.address)
    return "gone"


def await_end(world: World, machine: Machine) -> None:
    """Wait until the provider confirms that a machine is gone, and request its end again if it seems to live.

    Raises:
        StillBillingError: the provider hasn't confirmed it in time.
    """
    if not world.poll_until(lambda: _is_gone(world, machine.id), _END, world.clock, first=_POLL, longest=_RARELY):
        raise StillBillingError(
            f"machine {machine.id} may still be billing",
            why=f"the provider hasn't confirmed its end within {format_duration(_END)}",
            fix=f"try `kedge teardown {machine.run_id}` again; look at the provider's own console",
        )


def _await_last_upload(world: World, machine: Machine, *, briefly: bool) -> str:
    """Wait until the agent has uploaded the end of the run; what isn't uploaded is lost with the machine.

    Each second costs money, so nothing waits for an agent that is dead or sends invalid answers.

    Returns:
        Why the upload is missing; empty if it isn't, or if nobody knows.
    """
    at_most, silence = (LAST_UPLOAD, _SHORT_SILENCE) if briefly else (_UPLOAD_WAIT, _SILENCE)

    def look() -> str | None:
        """Return why the upload is missing, as the outer function does; None while it may still come."""
        report = ask(world, machine)
        if report is None or world.store is None:
            return ""
        upload = report.upload or UploadState()
        if not report.command.state.is_over or upload.time >= report.command.since:
            return ""
        return upload.error or _describe_silence(report, silence) or None

    why = world.poll_until(look, at_most, world.clock, first=_POLL, longest=_POLL)
    return f"not within {format_duration(at_most)}" if why is None else why


def _describe_silence(report: MachineReport, limit: timedelta) -> str:
    """Describe how long the agent's watch has been dead; empty if it isn't. Both times are the machine's own.

    Without any heartbeat, count from the machine's creation. The command's `since` can't be used: if its runner has
    died, `since` is the time of the report.
    """
    quiet = timedelta(seconds=report.now - (report.heartbeat or report.created))
    return f"its agent has had no heartbeat for {format_duration(quiet)}" if quiet > limit else ""


def _is_gone(world: World, machine_id: str) -> bool:
    """Tell whether it is gone; if not, request its end again, because the provider may not have known it before."""
    machine = world.provider.describe(machine_id)
    if machine is not None and machine.state is not MachineState.ENDING:
        world.provider.destroy(machine_id)
    return machine is None
