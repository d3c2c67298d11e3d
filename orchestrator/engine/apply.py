"""Carries out a plan: an intent in the ledger before every action, its outcome after it."""

from __future__ import annotations

from contextlib import ExitStack
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
from orchestrator.core.errors import ConflictError, KedgeError, NoCapacityError, StillBillingError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import CLOUD_ROOT, Machine, MachineOrder, MachineState, SshAddress
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan
from orchestrator.core.ports import Remote
from orchestrator.core.report import Command, RunState, Shipped
from orchestrator.core.units import format_duration
from orchestrator.core.wire import MIRRORED, BootOrder, DataSource
from orchestrator.engine import agent_client
from orchestrator.engine.boot import await_boot
from orchestrator.engine.events import (
    ActionBegan,
    ActionEnded,
    ActionProgressed,
    Events,
    LogLine,
    Remark,
    ReportSeen,
)
from orchestrator.engine.fetch import fetch_results
from orchestrator.engine.follow import RESTARTING, MachineLostError, follow
from orchestrator.engine.observe import ask, latest_command
from orchestrator.engine.reconcile import close_run, note_outcome
from orchestrator.engine.run_config import run_config
from orchestrator.engine.waiting import wait_for
from orchestrator.engine.world import World

_LOOKERS = timedelta(seconds=5)
"""How long a command waits for one that only looks, such as `status`, which settles the ledger."""

_OTHERS = timedelta(minutes=10)
"""How long the end of a launch waits for another command that acts on the same run."""

_SHIPMENT = timedelta(minutes=10)
_END = timedelta(minutes=5)
_POLL = timedelta(milliseconds=100)


@dataclass(slots=True)
class Progress:
    """How far a plan has come.

    Attributes:
        command: the command's state as it was last seen.
        finished: every action was carried out.
    """

    command: Command = field(default_factory=Command)
    finished: bool = False


def apply(plan: Plan, spec: LaunchSpec, world: World, events: Events) -> Progress:
    """Carry out a plan's actions in order, under the run's lock, which is let go while a command is followed.

    A failure leaves a ledger from which `resume` or `teardown` goes on. A command that was stopped, by
    whomever, ends the plan early: its machine stays. A plan that ends with nothing left closes the run.

    Raises:
        ConflictError: another command is at work on the run, or has been since the plan was made.
        KedgeError: an action failed.
    """
    progress = Progress()
    worker = _Worker(spec, world, events, progress)
    with ExitStack() as held:
        held.enter_context(world.ledger.lock(spec.run_id, wait=_LOOKERS))
        _refuse_stale(plan, world)
        if any(isinstance(action, CreateMachine | StartCommand) for action in plan.actions):
            world.ledger.open_run(spec, world.clock.now())
        for number, action in enumerate(plan.actions, 1):
            events(ActionBegan(number=number, action=action))
            if isinstance(action, FollowCommand):
                held.close()
                note = worker.follow(action)
                held.enter_context(world.ledger.lock(spec.run_id, wait=_OTHERS))
            else:
                note = worker.perform_journaled(action, ends=_ends(plan))
            events(ActionEnded(number=number, action=action, note=note))
            if progress.command.state is RunState.STOPPED and isinstance(action, FollowCommand):
                return progress
        if _ends(plan):
            for line in close_run(world, spec.run_id):
                events(Remark(text=line))
    progress.finished = True
    return progress


def _ends(plan: Plan) -> bool:
    return any(isinstance(action, DestroyMachine) for action in plan.actions)


def _refuse_stale(plan: Plan, world: World) -> None:
    """A plan that was made before somebody else acted could rent a second machine."""
    if plan.mark is not None and plan.mark != world.ledger.mark(plan.run_id):
        raise ConflictError(
            f"another command has acted on run {plan.run_id} since this plan was made",
            why="what was planned may not be what is needed any more; nothing was done",
            fix="give the same command again: it looks anew",
        )


class _Worker:
    """Performs one action at a time."""

    def __init__(self, spec: LaunchSpec, world: World, events: Events, progress: Progress) -> None:
        self.spec = spec
        self.world = world
        self.events = events
        self.progress = progress
        self._staged = ""
        self._staged_data: list[DataSource] = []

    def perform_journaled(self, action: Action, *, ends: bool) -> str:
        """Perform one action; a command that can't be stopped must not keep its machine from being ended."""
        if isinstance(action, CreateMachine):
            return self._create(action)
        try:
            return self._journaled(action)
        except KedgeError as err:
            if not (ends and isinstance(action, StopCommand)):
                raise
            self.events(Remark(text=f"{err.what}: {err.why}; the machine is ended all the same"))
            return "failed"

    def _journaled(self, action: Action) -> str:
        ledger, clock = self.world.ledger, self.world.clock
        intent = ledger.intend(self.spec.run_id, action, clock.now())
        try:
            note = self._perform(action)
        except BaseException as err:
            ledger.settle(intent, IntentState.FAILED, clock.now(), type(err).__name__)
            raise
        ledger.settle(intent, IntentState.DONE, clock.now(), note)
        return note

    def _perform(self, action: Action) -> str:  # noqa: C901, PLR0911 - one line for each kind of action
        match action:
            case StageCode():
                return self._stage_code(action)
            case StageData():
                return self._stage_data(action)
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

    def _create(self, action: CreateMachine) -> str:
        refusals: list[str] = []
        left = list(action.offers)
        while left:
            offer = left.pop(0)
            try:
                return self._create_from(action, offer)
            except NoCapacityError as refusal:
                refusals.append(f"{offer.place} {offer.instance_type}: {refusal.what}")
                self.events(Remark(text=refusals[-1]))
                left = [other for other in left if not refusal.covers(other)]
        raise NoCapacityError(
            f"no offer for {action.machine_id} could be had",
            why="; ".join(refusals),
            fix="try again later, or allow other types or regions",
        )

    def _create_from(self, action: CreateMachine, offer: Offer) -> str:
        """Create from one offer; only a clear refusal closes the intent, all else is settled by looking."""
        ledger, clock = self.world.ledger, self.world.clock
        order = self._order(action, offer)
        intent = ledger.intend(self.spec.run_id, action, clock.now())
        try:
            machine = self.world.provider.create(order)
        except NoCapacityError as refusal:
            ledger.settle(intent, IntentState.FAILED, clock.now(), refusal.what)
            raise
        ledger.put_machine(machine)
        ledger.settle(intent, IntentState.DONE, clock.now())
        return offer.place

    def _order(self, action: CreateMachine, offer: Offer) -> MachineOrder:
        resources = self.spec.job.resources
        return MachineOrder(
            id=action.machine_id,
            run_id=self.spec.run_id,
            instance_type=offer.instance_type,
            region=offer.region,
            zone=offer.zone,
            spot=offer.spot,
            usd_per_hour=offer.total_usd_per_hour,
            lifetime_seconds=round(action.lifetime.total_seconds()),
            authorized_key=self.world.authorized_key,
            agent_archive=self.world.agent_archive(),
            store_url=self.world.store.url if self.world.store else "",
            boot=BootOrder(code=self._staged, start=action.starts),
            image_id=resources.image_id,
            disk_gib=resources.disk_gib,
            volumes=resources.volumes,
            max_usd_per_hour=resources.max_usd_per_hour,
        )

    def _stage_code(self, action: StageCode) -> str:
        stage = self.world.stage
        if stage is None:
            raise KedgeError(f"machines at {self.world.provider.name} don't start by themselves")
        source = self.world.code(self.spec.job)
        if source is not None:
            self._staged = stage.put_code(self.spec.run_id, source, self._moved)
        unit = self.world.render_unit(self.spec.job, CLOUD_ROOT)
        config = run_config(self.spec, action.gpus, self.world.environ, unit, staged=self._staged_data)
        stage.put_start(self.spec.run_id, config)
        return self._staged[:12]

    def _stage_data(self, action: StageData) -> str:
        stage = self.world.data_stage
        if stage is None:
            raise KedgeError(f"machines at {self.world.provider.name} have no object store to take data from")
        name = stage.put_data(action.mount, self._moved).name
        self._staged_data.append(DataSource(source=f"{MIRRORED}{name}", target=action.mount.target))
        return name

    def _await(self, action: AwaitMachine) -> str:
        machine, report = await_boot(self.world, self.spec.run_id, action.machine_id)
        self.world.ledger.put_machine(replace(machine, zstd=report.zstd))
        return ""

    def _send_code(self, action: SendCode) -> str:
        machine = self._machine(action.machine_id)
        source = self.world.code(self.spec.job)
        if source is None:
            return "nothing to send"
        return source.send(self._connect(machine), machine, self._moved)[:12]

    def _send_data(self, action: SendData) -> str:
        machine = self._machine(action.machine_id)
        self.world.data.send(action.mount, machine, self._moved, delete=action.delete)
        return ""

    def _stop(self, action: StopCommand) -> str:
        machine = self._machine(action.machine_id)
        grace = self.spec.job.supervisor.grace
        reason = RESTARTING if action.restarts else "an operator's stop"
        return self._note(agent_client.stop(self._connect(machine), machine, grace=grace, reason=reason))

    def _start(self, action: StartCommand) -> str:
        machine = self._machine(action.machine_id)
        unit = self.world.render_unit(self.spec.job, machine.root)
        config = run_config(self.spec, machine.gpus, self.world.environ, unit)
        return self._note(agent_client.start(self._connect(machine), machine, config))

    def follow(self, action: FollowCommand) -> str:
        machine = self._machine(action.machine_id)
        try:
            for event in follow(self.world, machine, offset=0, until_over=True):
                if event.line is not None:
                    self.events(LogLine(text=event.line))
                if event.report is not None:
                    self.progress.command = event.report.command
                    self.events(ReportSeen(report=event.report))
        except MachineLostError as lost:
            self.progress.command = self._last_word(lost)
        return self._note(self.progress.command)

    def _last_word(self, lost: MachineLostError) -> Command:
        """Return what a machine that ended by itself left in the store."""
        shipped = latest_command(self.world, self.spec.run_id)
        if shipped is None or not shipped.state.is_over:
            raise lost
        return shipped

    def _fetch(self, action: FetchResults) -> str:
        machine = self._machine(action.machine_id)
        return fetch_results(self.world, machine, action.destination, self._moved)

    def _destroy(self, action: DestroyMachine) -> str:
        machine = self._machine(action.machine_id)
        self._await_shipment(machine)
        self.world.provider.destroy(machine.id)
        self._wait_until_gone(machine.id)
        self.world.ledger.end_machine(machine.id, self.world.clock.now())
        if machine.address is not None:
            self.world.connector.forget(machine.address)
        return "gone"

    def _await_shipment(self, machine: Machine) -> None:
        """Wait until the agent has copied the end of the run to the store: what isn't there ends with the machine."""
        give_up_at = self.world.clock.now() + _SHIPMENT
        while (report := ask(self.world, machine)) is not None and self.world.store is not None:
            shipped = report.shipped or Shipped()
            if not report.command.state.is_over or shipped.time >= report.command.since:
                return
            if shipped.error or self.world.clock.now() > give_up_at:
                self.events(Remark(text=f"the object store lacks the end of the run: {shipped.error or 'too slow'}"))
                return
            self.world.clock.sleep(_POLL)

    def _wait_until_gone(self, machine_id: str) -> None:
        gone = wait_for(lambda: self._is_gone(machine_id) or None, _END, self.world.clock)
        if gone is None:
            raise StillBillingError(
                f"machine {machine_id} may still be billing",
                why=f"the provider hasn't confirmed its end within {format_duration(_END)}",
                fix=f"try `kedge teardown {self.spec.run_id}` again; look at the provider's own console",
            )

    def _is_gone(self, machine_id: str) -> bool:
        """Look, and ask again: a provider may not have known of a young machine when it was asked first."""
        machine = self.world.provider.describe(machine_id)
        if machine is not None and machine.state is not MachineState.ENDING:
            self.world.provider.destroy(machine_id)
        return machine is None

    def _note(self, command: Command) -> str:
        self.progress.command = command
        note_outcome(self.world, self.spec.run_id, command)
        return str(command.state)

    def _moved(self, done: int, total: int) -> None:
        self.events(ActionProgressed(done=done, total=total))

    def _machine(self, machine_id: str) -> Machine:
        machine = next((m for m in self.world.ledger.machines(self.spec.run_id) if m.id == machine_id), None)
        if machine is None:
            raise KedgeError(f"machine {machine_id} is not in the ledger")
        return machine

    def _connect(self, machine: Machine) -> Remote:
        return self.world.connector.connect(_address(machine))


def _address(machine: Machine) -> SshAddress:
    if machine.address is None:
        raise UnreachableError(f"machine {machine.id} has no address yet", fix="wait until it has booted")
    return machine.address
