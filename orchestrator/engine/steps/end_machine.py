"""Ends machines: waits for their last uploads, destroys them, and waits until the provider confirms their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from orchestrator.core.actions import LAST_UPLOAD, DestroyMachine
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.machine import EndedBy, Machine, MachineState
from orchestrator.core.protocol.report import MachineReport, UploadState
from orchestrator.core.values.units import format_duration
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.journal import Entry, journaled_together
from orchestrator.engine.observing.observe import why_ended
from orchestrator.engine.observing.questions import ask
from orchestrator.engine.world import World

_UPLOAD_WAIT = timedelta(minutes=10)
"""How long to wait for the last upload of results that somebody needs."""

_SILENCE = timedelta(minutes=1)
"""The agent's watch has a heartbeat every second; after this long without one it is dead, and uploads nothing."""

_SHORT_SILENCE = timedelta(seconds=15)
"""The shorter wait if the results are on the laptop already, or unwanted: only a `resume` would need the rest."""

_FOLLOWS_HEAD = timedelta(minutes=1)
"""How long the command of another machine of a run may take to end after the head's, which it waits for."""

_END = timedelta(minutes=5)

_TAKEN_AWAY = timedelta(seconds=30)
"""How long a run that continues elsewhere waits for the end of a machine that its provider has taken away."""

GONE = "gone"

_POLL = timedelta(milliseconds=100)
_RARELY = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A machine to end.

    Attributes:
        action: what the ledger records before.
        fetched: a verified copy of all its results is on the laptop.
    """

    machine: Machine
    action: DestroyMachine
    fetched: bool = False


def end_machines(world: World, run_id: str, endings: Sequence[Ending], events: Events) -> list[str]:
    """Destroy a run's machines, and stop the bill of each in the ledger when it is gone.

    Every end is requested before one is waited for. The machines can delay that, by ten minutes at most, but can't
    prevent it.

    Args:
        world: the run's ports.
        run_id: the run.
        endings: the machines.
        events: receives a remark if the last results were not uploaded.

    Returns:
        A remark about each: GONE, or that its provider has taken it away, and it is still shutting down.

    Raises:
        StillBillingError: the provider hasn't confirmed an end in time.
        KedgeError: an end couldn't be requested; the others were.
    """
    with journaled_together(world.ledger, world.clock, run_id, [each.action for each in endings]) as entries:
        _await_last_uploads(world, endings, events)
        for entry, ending in zip(entries, endings, strict=True):
            entry.error = _attempt(partial(world.provider.destroy, ending.machine.id))
        for entry, ending in zip(entries, endings, strict=True):
            entry.note = GONE
            entry.error = entry.error or _attempt(partial(_confirm_end, world, ending, entry))
    errors = [entry.error for entry in entries if entry.error is not None]
    if errors:
        raise next((err for err in errors if isinstance(err, StillBillingError)), errors[0])
    return [entry.note for entry in entries]


def _attempt(act: Callable[[], None]) -> KedgeError | None:
    try:
        act()
    except KedgeError as err:
        return err
    return None


def _confirm_end(world: World, ending: Ending, entry: Entry) -> None:
    machine = ending.machine
    was_taken = ending.action.is_ending and _was_taken_away(world, machine)
    if was_taken and not _ends_within(world, machine, _TAKEN_AWAY):
        entry.note = f"{world.provider.name} has taken it away; it is still shutting down"
        return
    await_end(world, machine)
    world.ledger.record_machine_end(machine.id, world.clock.now())
    if machine.address is not None:
        world.connector.forget(machine.address)


def await_end(world: World, machine: Machine) -> None:
    """Wait until the provider confirms that a machine is gone, and request its end again if it seems to live.

    Raises:
        StillBillingError: the provider hasn't confirmed it in time.
    """
    if not _ends_within(world, machine, _END):
        raise StillBillingError(
            f"machine {machine.id} may still be billing",
            why=f"the provider hasn't confirmed its end within {format_duration(_END)}",
            fix=f"try `kedge teardown {machine.run_id}` again; look at the provider's own console",
        )


def _ends_within(world: World, machine: Machine, at_most: timedelta) -> bool:
    return bool(
        world.poll_until(lambda: _is_gone(world, machine.id), at_most, world.clock, first=_POLL, longest=_RARELY)
    )


def _was_taken_away(world: World, machine: Machine) -> bool:
    end = machine.end or why_ended(world, machine.id)
    return end is not None and end.by is EndedBy.PROVIDER


def _await_last_uploads(world: World, endings: Sequence[Ending], events: Events) -> None:
    """Wait for the last uploads of all machines, no longer than for one."""
    began = world.clock.now()
    heads = [ask(world, ending.machine) for ending in endings if len(endings) > 1 and not ending.machine.rank]
    head_is_over = any(report is not None and report.command.state.is_over for report in heads)
    for ending in endings:
        if ending.action.is_ending:
            continue
        briefly, waited = ending.fetched or ending.action.leaves_results, world.clock.now() - began
        follows = head_is_over and ending.machine.rank > 0
        if why := _await_last_upload(world, ending.machine, briefly=briefly, waited=waited, follows=follows):
            at_home = "; a verified copy of the results is on this computer" if ending.fetched else ""
            events(Remark(text=f"the last results were not uploaded: {why}{at_home}"))


def _await_last_upload(world: World, machine: Machine, *, briefly: bool, waited: timedelta, follows: bool) -> str:
    """Wait until the agent has uploaded the end of the run; what isn't uploaded is lost with the machine.

    Each second costs money, so nothing waits for an agent that is dead or sends invalid answers.

    Args:
        world: the run's ports.
        machine: the machine.
        briefly: nobody needs its results.
        waited: the time that was spent on other machines, which have uploaded meanwhile.
        follows: its command ends after the head's, which has ended.

    Returns:
        Why the upload is missing; empty if it isn't, or if nobody knows.
    """
    ends_by = world.clock.now() + _FOLLOWS_HEAD
    at_most, silence = (LAST_UPLOAD, _SHORT_SILENCE) if briefly else (_UPLOAD_WAIT, _SILENCE)

    def look() -> str | None:
        """Return why the upload is missing, as the outer function does; None while it may still come."""
        report = ask(world, machine)
        if report is None or world.store is None:
            return ""
        upload = report.upload or UploadState()
        if not report.command.state.is_over:
            return None if follows and report.command.state.is_live and world.clock.now() < ends_by else ""
        if upload.time >= report.command.since:
            return ""
        return upload.error or _describe_silence(report, silence) or None

    left = max(timedelta(0), at_most - waited)
    why = world.poll_until(look, left, world.clock, first=_POLL, longest=_POLL)
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
