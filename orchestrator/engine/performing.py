"""Performs the single actions of a plan, each with an intent before it and an outcome after it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import assert_never

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    FetchResults,
    FollowCommand,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StartCommand,
    StopCommand,
)
from orchestrator.core.errors import KedgeError, UnfitMachineError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.report import DEADLINE, Command, RunState
from orchestrator.engine import agent_client
from orchestrator.engine.events import ActionProgressed, Events, LogLine, Remark, ReportSeen
from orchestrator.engine.journal import journaled
from orchestrator.engine.observing.observe import latest_command, rented_offer
from orchestrator.engine.observing.reconcile import note_outcome
from orchestrator.engine.steps.boot import BOOT, await_boot
from orchestrator.engine.steps.creation import create_machine
from orchestrator.engine.steps.end_machine import await_end, end_machine
from orchestrator.engine.steps.fetch import fetch_results
from orchestrator.engine.steps.follow import RESTARTING, MachineLostError, OverdueError, follow
from orchestrator.engine.steps.reaching import reach
from orchestrator.engine.steps.run_config import run_config
from orchestrator.engine.steps.staging import Staging
from orchestrator.engine.world import World

_FETCHED_FROM = timedelta(minutes=5)
"""How long a fetch waits for a machine that is still booting, before it takes what the object store has."""


@dataclass(slots=True)
class RunProgress:
    """How far a plan has been executed.

    Attributes:
        command: the command's last known state.
        finished: every action was performed.
    """

    command: Command = field(default_factory=Command)
    finished: bool = False


class Performer:
    """Performs the actions of one plan, one at a time."""

    def __init__(self, spec: LaunchSpec, world: World, events: Events) -> None:
        self.progress = RunProgress()
        self._spec = spec
        self._world = world
        self._events = events
        self._staging = Staging(spec, world, self._moved)
        self._fetched: set[str] = set()
        self._unseen: set[str] = set()
        self._ending: list[Machine] = []

    def perform(self, action: Action, *, ends: bool) -> str:
        """Perform one action, and return a remark about it.

        Args:
            action: any except FollowCommand, which changes nothing.
            ends: the plan destroys its machine. Two failures don't prevent that, and only become a remark: its command
                can't be stopped; its results can't be fetched, and it is past its deadline or has never booted.

        Raises:
            KedgeError: it failed.
        """
        if isinstance(action, CreateMachine):
            boot = self._staging.boot_order(action)
            return create_machine(self._world, self._spec, action, boot, self._events).place
        try:
            return self._journaled(action)
        except KedgeError as err:
            if not (ends and self._is_dispensable(action)):
                raise
            self._tell(f"{err.what}: {err.why}; the machine is ended anyway")
            return "failed"

    def _is_dispensable(self, action: Action) -> bool:
        if isinstance(action, FetchResults):
            has_run = action.machine_id in self._unseen or self._machine(action.machine_id).has_booted
            return self.progress.command.met_deadline or not has_run
        return isinstance(action, StopCommand)

    def await_ends(self) -> None:
        """Wait until the machines that were still shutting down are gone.

        Raises:
            StillBillingError: the provider hasn't confirmed it in time.
        """
        for machine in self._ending:
            await_end(self._world, machine)

    def follow(self, action: FollowCommand) -> str:
        """Show the command's log until it has ended, and return its state.

        Raises:
            MachineLostError: its machine is gone, and hasn't uploaded how the command ended.
        """
        try:
            machine = self._reach(action.machine_id)
            for event in follow(self._world, machine, offset=0, until_over=True):
                if event.line is not None:
                    self._events(LogLine(text=event.line))
                if event.report is not None:
                    self.progress.command = event.report.command
                    self._events(ReportSeen(report=event.report))
        except MachineLostError as lost:
            self.progress.command = self._last_word(lost)
        except OverdueError as overdue:
            # The plan continues, so that its last steps fetch the results and end the machine.
            self._tell(f"{overdue.what}: {overdue.why}")
            self.progress.command = replace(self.progress.command, state=RunState.STOPPED, reason=DEADLINE)
        return self._note(self.progress.command)

    def _last_word(self, lost: MachineLostError) -> Command:
        """Return the command's state that a machine uploaded before it ended itself."""
        last = latest_command(self._world, self._spec.run_id)
        if last is None or not last.state.is_over:
            raise lost
        return last

    def _journaled(self, action: Action) -> str:
        with journaled(self._world.ledger, self._world.clock, self._spec.run_id, action) as entry:
            entry.note = self._act(action)
        return entry.note

    def _act(self, action: Action) -> str:  # noqa: C901, PLR0911 - one line for each kind of action
        match action:
            case StageCode():
                return self._staging.put_code(action)
            case StageData():
                return self._staging.put_data(action)
            case AwaitMachine():
                return self._await(action)
            case SendCode():
                return self._send_code(action)
            case SendData():
                return self._send_data(action)
            case StopCommand():
                return self._stop(action)
            case StartCommand():
                return self._start(action)
            case FetchResults():
                return self._fetch(action)
            case DestroyMachine():
                return self._destroy(action)
            case CreateMachine() | FollowCommand():
                raise AssertionError("a creation writes an intent for each offer; following changes nothing")
            case _:
                assert_never(action)

    def _await(self, action: AwaitMachine) -> str:
        try:
            machine, report = await_boot(self._world, self._spec.run_id, action.machine_id)
        except MachineLostError as lost:
            # A machine that starts by itself may be over before this computer can connect.
            said = self._note(self._last_word(lost))
            self._unseen.add(action.machine_id)
            return f"gone already; its command: {said}"
        except UnfitMachineError as unfit:
            unfit.offer = rented_offer(self._world, self._spec.run_id, action.machine_id)
            self._journaled(DestroyMachine(machine_id=action.machine_id))
            raise
        self._world.ledger.put_machine(replace(machine, zstd=report.zstd))
        return ""

    def _send_code(self, action: SendCode) -> str:
        machine = self._reach(action.machine_id)
        source = self._world.code_source(self._spec.job)
        if source is None:
            return "nothing to send"
        return source.send(self._connect(machine), machine, self._moved)[:12]

    def _send_data(self, action: SendData) -> str:
        machine = self._reach(action.machine_id)
        self._world.mover.send(action.mount, machine, self._moved, delete=action.delete)
        return ""

    def _stop(self, action: StopCommand) -> str:
        machine = self._reach(action.machine_id)
        if action.now:
            return self._note(agent_client.kill(self._connect(machine), machine))
        grace = self._spec.job.supervisor.grace
        reason = RESTARTING if action.restarts else "an operator's stop"
        return self._note(agent_client.stop(self._connect(machine), machine, grace=grace, reason=reason))

    def _start(self, action: StartCommand) -> str:
        machine = self._reach(action.machine_id)
        unit = self._world.render_unit(self._spec.job, machine.root)
        config = run_config(self._spec, machine.gpus, self._world.environ, unit)
        return self._note(agent_client.start(self._connect(machine), machine, config))

    def _fetch(self, action: FetchResults) -> str:
        machine = self._machine(action.machine_id)
        # A machine that has uploaded nothing may still have results on its disk.
        with suppress(UnreachableError):
            machine = self._reach(action.machine_id, at_most=_FETCHED_FROM)
        fetched = fetch_results(self._world, machine, action.destination, self._moved)
        if fetched.final is not None:
            self._fetched.add(action.machine_id)
            self._record_unfollowed(fetched.final)
        return fetched.note

    def _destroy(self, action: DestroyMachine) -> str:
        machine = self._machine(action.machine_id)
        is_gone = end_machine(
            self._world,
            machine,
            self._events,
            fetched=action.machine_id in self._fetched,
            leaves_results=action.leaves_results,
            is_ending=action.is_ending,
        )
        if is_gone:
            return "gone"
        self._ending.append(machine)
        return f"{self._world.provider.name} has taken it away; it is still shutting down"

    def _record_unfollowed(self, command: Command) -> None:
        """Record how an unfollowed command ended, which its machine may never have uploaded."""
        record = self._world.ledger.run(self._spec.run_id)
        if record is not None and record.outcome != command.state:
            note_outcome(self._world, self._spec.run_id, command)

    def _note(self, command: Command) -> str:
        self.progress.command = command
        note_outcome(self._world, self._spec.run_id, command)
        return str(command.state)

    def _moved(self, done: int, total: int) -> None:
        self._events(ActionProgressed(done=done, total=total))

    def _machine(self, machine_id: str) -> Machine:
        machine = next((m for m in self._world.ledger.machines(self._spec.run_id) if m.id == machine_id), None)
        if machine is None:
            raise KedgeError(f"machine {machine_id} is not in the ledger")
        return machine

    def _reach(self, machine_id: str, *, at_most: timedelta = BOOT) -> Machine:
        return reach(self._world, self._machine(machine_id), self._tell, at_most=at_most)

    def _tell(self, text: str) -> None:
        self._events(Remark(text=text))

    def _connect(self, machine: Machine) -> Remote:
        return self._world.connector.connect(machine.require_address())
