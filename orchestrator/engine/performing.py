"""Performs the single actions of a plan, each with an intent before it and an outcome after it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import assert_never

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    FetchResults,
    FollowCommand,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StageSecrets,
    StartCommand,
    StopCommand,
)
from orchestrator.core.errors import ConflictError, KedgeError, UnfitMachineError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import LOOK_WAIT
from orchestrator.core.machine import Machine, newest_gang
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.report import DEADLINE, Command, MachineReport, RunState
from orchestrator.engine import agent_client
from orchestrator.engine.events import ActionProgressed, Events, LogLine, Remark, ReportSeen
from orchestrator.engine.extending import extend_deadline
from orchestrator.engine.journal import journaled
from orchestrator.engine.observing.modes import record_modes, record_reported_modes, record_uploaded_modes
from orchestrator.engine.observing.observe import latest_upload, rented_offer
from orchestrator.engine.observing.reconcile import note_outcome
from orchestrator.engine.run_progress import RunProgress
from orchestrator.engine.steps.boot import BOOT, await_boot
from orchestrator.engine.steps.creation import create_machines
from orchestrator.engine.steps.end_machine import GONE, Ending, await_end, end_machines
from orchestrator.engine.steps.fetch_gang import fetch_from_all
from orchestrator.engine.steps.follow import RESTARTING, MachineLostError, OverdueError
from orchestrator.engine.steps.follow_nodes import follow_nodes
from orchestrator.engine.steps.gang import GangWatch, await_gang
from orchestrator.engine.steps.gang_config import add_gang
from orchestrator.engine.steps.reaching import reach
from orchestrator.engine.steps.run_config import run_config
from orchestrator.engine.steps.sending import Send, send, send_together
from orchestrator.engine.steps.staging import Staging
from orchestrator.engine.steps.wanted import wanted_by
from orchestrator.engine.world import World

_FETCHED_FROM = timedelta(minutes=5)
"""How long a fetch waits for a machine that is still booting, before it takes what the object store has."""


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

    def perform_together(self, actions: Sequence[AwaitMachine | DestroyMachine | Send]) -> list[str]:
        """Perform actions on several machines at once, of one kind or transfers, and return a remark about each.

        Raises:
            KedgeError: one failed.
        """
        if ends := [each for each in actions if isinstance(each, DestroyMachine)]:
            return self._destroy(ends)
        if sends := [each for each in actions if isinstance(each, SendCode | SendData)]:
            machines = {each.machine_id: self._reach(each.machine_id) for each in sends}
            return send_together(self._world, self._spec.job, sends, machines, self._events)
        waits = [each for each in actions if isinstance(each, AwaitMachine)]
        if self._spec.job.num_nodes == 1:
            return [self._journaled(each) for each in waits]
        await_gang(self._world, self._spec.run_id, waits, self._events)
        return ["" for _ in waits]

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
            return create_machines(self._world, self._spec, action, boot, self._events).place
        if isinstance(action, ExtendDeadline):
            return extend_deadline(self._world, action, self._events)
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
        """Show the logs of all machines until the head's command has ended, and return its state.

        Raises:
            MachineLostError: its machine is gone, and hasn't uploaded how the command ended.
        """
        try:
            machine = self._reach(action.machine_id)
            others = GangWatch(self._world, self._spec)
            for node, event in follow_nodes(self._world, [machine, *self._besides(machine)], {}):
                if event.line is not None:
                    self._events(LogLine(text=event.line, task=event.task, node=node))
                if event.report is not None and node == machine.rank:
                    record_reported_modes(self._world, event.report)
                    self.progress.see(event.report)
                    self._events(ReportSeen(report=event.report))
                    others.look(event.report)
        except MachineLostError as lost:
            with suppress(ConflictError), self._world.ledger.lock(self._spec.run_id, wait=LOOK_WAIT):
                record_uploaded_modes(self._world, self._spec.run_id)
            self.progress.command = self._last_word(lost)
        except OverdueError as overdue:
            # The plan continues, so that its last steps fetch the results and end the machine.
            self._tell(f"{overdue.what}: {overdue.why}")
            self.progress.command = replace(self.progress.command, state=RunState.STOPPED, reason=DEADLINE)
        return self._note(self.progress.command)

    def _besides(self, head: Machine) -> list[Machine]:
        gang = newest_gang(self._world.ledger.machines(self._spec.run_id, live_only=True))
        return [machine for machine in gang if machine.rank != head.rank and machine.address is not None]

    def _last_word(self, lost: MachineLostError) -> Command:
        """Return the command's state that a machine uploaded before it ended itself."""
        last = latest_upload(self._world, self._spec.run_id)
        if last is None or not last.command.state.is_over or lost.is_other:
            raise lost
        self.progress.tasks = last.tasks
        return last.command

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
            case StageSecrets():
                return self._staging.put_secrets(action)
            case AwaitMachine():
                return self._await(action)
            case SendCode() | SendData():
                machine = self._reach(action.machine_id)
                return send(self._world, self._spec.job, action, machine, self._moved)
            case StopCommand():
                return self._stop(action)
            case StartCommand():
                return self._start(action)
            case FetchResults():
                return self._fetch(action)
            case CreateMachine() | DestroyMachine() | ExtendDeadline() | FollowCommand():
                raise AssertionError("some write their intents themselves; following changes nothing")
            case _:
                assert_never(action)

    def _await(self, action: AwaitMachine) -> str:
        try:
            machine, report = await_boot(self._world, self._spec.run_id, action.machine_id)
        except MachineLostError as lost:
            # A machine that starts by itself may be over before this computer can connect.
            record_uploaded_modes(self._world, self._spec.run_id)
            said = self._note(self._last_word(lost))
            self._unseen.add(action.machine_id)
            return f"gone already; its command: {said}"
        except UnfitMachineError as unfit:
            unfit.offer = rented_offer(self._world, self._spec.run_id, action.machine_id)
            self._destroy([DestroyMachine(machine_id=action.machine_id)])
            raise
        self._world.ledger.put_machine(replace(machine, zstd=report.zstd))
        return ""

    def _stop(self, action: StopCommand) -> str:
        machine = self._reach(action.machine_id)
        remote = self._connect(machine)
        if action.now:
            return self._note_tasks(machine, agent_client.kill(remote, machine, action.tasks))
        grace = self._spec.job.grace
        reason = RESTARTING if action.restarts else "an operator's stop"
        stopped = agent_client.stop(remote, machine, action.tasks, grace=grace, reason=reason)
        return self._note_tasks(machine, stopped)

    def _start(self, action: StartCommand) -> str:
        machine = self._reach(action.machine_id)
        unit = self._world.render_unit(self._spec.job, machine.root)
        config = run_config(self._spec, machine.gpus, self._world.environ, unit, done=action.done)
        gang = newest_gang(self._world.ledger.machines(self._spec.run_id))
        config = add_gang(config, self._spec.job, machine, gang, self._world.group_token(self._spec.run_id))
        return self._note_tasks(machine, agent_client.start(self._connect(machine), machine, config, action.tasks))

    def _fetch(self, action: FetchResults) -> str:
        machine = self._machine(action.machine_id)
        # A machine that has uploaded nothing may still have results on its disk.
        with suppress(UnreachableError):
            machine = self._reach(action.machine_id, at_most=_FETCHED_FROM)
        wanted = wanted_by(self._spec, action, self._moved, self._tell)
        fetched = fetch_from_all(self._world, machine, wanted, without=action.without)
        if fetched.report is not None:
            self.progress.see_tasks(fetched.report)
            record_modes(self._world, self._spec.run_id, fetched.report.sequence, fetched.report.earlier)
        self._fetched.update(fetched.ended)
        if fetched.final is not None:
            self._record_unfollowed(fetched.final, fetched.report)
        return fetched.note

    def _destroy(self, actions: Sequence[DestroyMachine]) -> list[str]:
        endings = [
            Ending(machine=self._machine(each.machine_id), action=each, fetched=each.machine_id in self._fetched)
            for each in actions
        ]
        notes = end_machines(self._world, self._spec.run_id, endings, self._events)
        self._ending += (ending.machine for ending, note in zip(endings, notes, strict=True) if note != GONE)
        return notes

    def _record_unfollowed(self, command: Command, report: MachineReport | None) -> None:
        """Record how an unfollowed command ended, which its machine may never have uploaded."""
        record = self._world.ledger.run(self._spec.run_id)
        if record is None or (report is not None and report.sequence != record.spec.sequence):
            return
        if record.outcome != command.state:
            note_outcome(self._world, self._spec.run_id, command)

    def _note_tasks(self, machine: Machine, command: Command) -> str:
        """Note the state of all tasks after a request that may have changed a few; `command` is the state of those."""
        if machine.rank or not any(task.name for task in self._spec.job.tasks):
            return self._note(command, machine)
        self.progress.see(agent_client.report(self._connect(machine), machine))
        self._note(self.progress.command)
        return str(command.state)

    def _note(self, command: Command, machine: Machine | None = None) -> str:
        """Record the state of the run's command: that of the head."""
        if machine is None or not machine.rank:
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
