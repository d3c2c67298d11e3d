"""Performs one action of a plan, with its intent before it and its outcome after it."""

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
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Remote
from orchestrator.core.report import DEADLINE, Command, RunState
from orchestrator.engine import agent_client
from orchestrator.engine.boot import BOOT, await_boot
from orchestrator.engine.creation import create_machine
from orchestrator.engine.ending import end_machine
from orchestrator.engine.events import ActionProgressed, Events, LogLine, Remark, ReportSeen
from orchestrator.engine.fetch import fetch_results
from orchestrator.engine.follow import RESTARTING, MachineLostError, OverdueError, follow
from orchestrator.engine.observe import latest_command, rented_offer
from orchestrator.engine.reaching import reach
from orchestrator.engine.reconcile import note_outcome
from orchestrator.engine.run_config import run_config
from orchestrator.engine.staging import Staging
from orchestrator.engine.world import World

_FETCHED_FROM = timedelta(minutes=5)
"""How long a machine that still boots is waited for before its results are looked for elsewhere."""


@dataclass(slots=True)
class Progress:
    """How far a plan has come.

    Attributes:
        command: the command's state as it was last seen.
        finished: every action was carried out.
    """

    command: Command = field(default_factory=Command)
    finished: bool = False


class Performer:
    """Performs the actions of one plan, one at a time."""

    def __init__(self, spec: LaunchSpec, world: World, events: Events) -> None:
        self.progress = Progress()
        self._spec = spec
        self._world = world
        self._events = events
        self._staging = Staging(spec, world, self._moved)
        self._fetched: set[str] = set()

    def perform(self, action: Action, *, ends: bool) -> str:
        """Perform one action, and return what there is to say of it.

        Args:
            action: any but to follow a command, which changes nothing.
            ends: its plan ends its machine: a command that can't be stopped must not keep the machine from that, nor
                results that can't be fetched any more at its deadline.

        Raises:
            KedgeError: it failed.
        """
        if isinstance(action, CreateMachine):
            boot = self._staging.order(action)
            return create_machine(self._world, self._spec, action, boot, self._events).place
        try:
            return self._journaled(action)
        except KedgeError as err:
            if not (ends and self._is_dispensable(action)):
                raise
            self._tell(f"{err.what}: {err.why}; the machine is ended all the same")
            return "failed"

    def _is_dispensable(self, action: Action) -> bool:
        if isinstance(action, FetchResults):
            return self.progress.command.met_deadline or not self._machine(action.machine_id).has_booted
        return isinstance(action, StopCommand)

    def follow(self, action: FollowCommand) -> str:
        """Show the command's log until it is over, and return its state.

        Raises:
            MachineLostError: its machine is gone, and hasn't left word of how the command ended.
        """
        machine = self._reach(action.machine_id)
        try:
            for event in follow(self._world, machine, offset=0, until_over=True):
                if event.line is not None:
                    self._events(LogLine(text=event.line))
                if event.report is not None:
                    self.progress.command = event.report.command
                    self._events(ReportSeen(report=event.report))
        except MachineLostError as lost:
            self.progress.command = self._last_word(lost)
        except OverdueError as overdue:
            # Its plan goes on to its end.
            self._tell(f"{overdue.what}: {overdue.why}")
            self.progress.command = replace(self.progress.command, state=RunState.STOPPED, reason=DEADLINE)
        return self._note(self.progress.command)

    def _last_word(self, lost: MachineLostError) -> Command:
        """Return what a machine that ended by itself left in the store."""
        shipped = latest_command(self._world, self._spec.run_id)
        if shipped is None or not shipped.state.is_over:
            raise lost
        return shipped

    def _journaled(self, action: Action) -> str:
        ledger, clock = self._world.ledger, self._world.clock
        intent = ledger.intend(self._spec.run_id, action, clock.now())
        try:
            note = self._act(action)
        except BaseException as err:
            ledger.settle(intent, IntentState.FAILED, clock.now(), type(err).__name__)
            raise
        ledger.settle(intent, IntentState.DONE, clock.now(), note)
        return note

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
        except UnfitMachineError as unfit:
            unfit.offer = rented_offer(self._world, self._spec.run_id, action.machine_id)
            self._journaled(DestroyMachine(machine_id=action.machine_id))
            raise
        self._world.ledger.put_machine(replace(machine, zstd=report.zstd))
        return ""

    def _send_code(self, action: SendCode) -> str:
        machine = self._reach(action.machine_id)
        source = self._world.code(self._spec.job)
        if source is None:
            return "nothing to send"
        return source.send(self._connect(machine), machine, self._moved)[:12]

    def _send_data(self, action: SendData) -> str:
        machine = self._reach(action.machine_id)
        self._world.data.send(action.mount, machine, self._moved, delete=action.delete)
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
        # What has left nothing in the store may have something on its disk.
        with suppress(UnreachableError):
            machine = self._reach(action.machine_id, at_most=_FETCHED_FROM)
        fetched = fetch_results(self._world, machine, action.destination, self._moved)
        if fetched.final is not None:
            self._fetched.add(action.machine_id)
            self._note_unseen(fetched.final)
        return fetched.note

    def _destroy(self, action: DestroyMachine) -> str:
        machine, fetched = self._machine(action.machine_id), action.machine_id in self._fetched
        return end_machine(self._world, machine, self._events, fetched=fetched, hurried=action.leaves_results)

    def _note_unseen(self, command: Command) -> None:
        """Record how a command ended that nobody has followed: its machine may never have uploaded that."""
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
