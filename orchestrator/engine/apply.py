"""Applies a plan: opens the run, performs the actions in order under its lock, and closes it (performing, journal)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import groupby

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    FollowCommand,
    StageCode,
    StageData,
    StageSecrets,
    StartCommand,
)
from orchestrator.core.errors import ConflictError, KedgeError, StillBillingError, UnfitMachineError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import LOOK_WAIT, RunStage
from orchestrator.core.modes import with_recorded_modes
from orchestrator.core.plan import Plan, refuse_snapshot
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.engine.events import ActionBegan, ActionEnded, Events, Remark
from orchestrator.engine.observing.reconcile import close_run
from orchestrator.engine.performing import Performer
from orchestrator.engine.run_progress import RunProgress
from orchestrator.engine.steps.sending import Send
from orchestrator.engine.world import World

_OTHERS = timedelta(minutes=10)
"""How long the end of a launch waits for another command that is acting on the same run."""

_Preparation = StageData | StageCode | StageSecrets | CreateMachine
"""Actions whose failure leaves the run without a machine, unless the outcome of the creation is unclear."""

_Together = AwaitMachine | DestroyMachine
"""Actions that are performed on several machines at once, where they follow each other."""


def apply(plan: Plan, spec: LaunchSpec, world: World, events: Events) -> RunProgress:
    """Execute a plan's actions in order, under the run's lock, which is released while a command is followed.

    After a failure, the ledger allows `resume` and `teardown` to continue. If somebody stops the command, the plan
    ends early and keeps the machine. At its deadline the machine is ended, because a machine that is only powered off
    may still be billed. The run is closed at the end of a plan that ends it, and after the failure of a plan that
    began it but got no machine.

    Raises:
        ConflictError: another command is acting on the run, or has acted on it since the plan was made.
        UnreachableError: the plan's offers come from a snapshot; nothing was done.
        KedgeError: an action failed.
    """
    # Commands check only their first plan, before they ask; after a lost machine, new plans come here unchecked.
    refuse_snapshot(plan)
    with ExitStack() as held:
        held.enter_context(world.ledger.lock(spec.run_id, wait=LOOK_WAIT))
        _refuse_stale(plan, world)
        record = world.ledger.run(spec.run_id)
        spec = with_recorded_modes(spec, record.spec) if record is not None else spec
        is_new = _open_run(plan, spec, world)
        performer = Performer(spec, world, events)
        for step in _steps(plan.actions):
            for number, action in step:
                events(ActionBegan(number=number, action=action))
            actions = [action for _, action in step]
            first = actions[0]
            if isinstance(first, FollowCommand):
                held.close()
                notes = [performer.follow(first)]
                held.enter_context(world.ledger.lock(spec.run_id, wait=_OTHERS))
            else:
                with _closing_without_machine(spec, world, events, applies=is_new and isinstance(first, _Preparation)):
                    notes = _perform(performer, plan, actions)
            for (number, action), note in zip(step, notes, strict=True):
                events(ActionEnded(number=number, action=action, note=note))
            if isinstance(first, FollowCommand) and _keeps_machine(spec, performer.progress.command):
                return performer.progress
        if plan.ends:
            performer.await_ends()
            for line in close_run(world, spec.run_id):
                events(Remark(text=line))
    performer.progress.finished = True
    return performer.progress


def _steps(actions: Sequence[Action]) -> Iterator[list[tuple[int, Action]]]:
    """Return the numbered actions, those in a row that are performed together as one step.

    Transfers to one machine follow one another: each has its own line of progress.
    """

    def step_of(each: tuple[int, Action]) -> object:
        if isinstance(each[1], Send):
            return Send
        return type(each[1]) if isinstance(each[1], _Together) else each[0]

    for _, group in groupby(enumerate(actions, 1), key=step_of):
        step = list(group)
        receivers = {action.machine_id for _, action in step if isinstance(action, Send)}
        if len(receivers) == 1:
            yield from ([each] for each in step)
        else:
            yield step


def _perform(performer: Performer, plan: Plan, actions: Sequence[Action]) -> list[str]:
    """Perform a step: one action, or several together."""
    sends = [action for action in actions if isinstance(action, Send)]
    together = sends if len(sends) > 1 else [action for action in actions if isinstance(action, _Together)]
    if together:
        return performer.perform_together(together)
    return [performer.perform(action, ends=_destroys(plan, action)) for action in actions]


def _open_run(plan: Plan, spec: LaunchSpec, world: World) -> bool:
    """Make the run live if a machine or a command begins, and record changes of a live run's specification.

    Returns:
        Whether the run became live.
    """
    record = world.ledger.run(spec.run_id)
    is_live = record is not None and record.stage is RunStage.LIVE
    begins = any(isinstance(action, CreateMachine | StartCommand) for action in plan.actions)
    if begins or (record is not None and is_live and record.spec != spec):
        world.ledger.open_run(spec, world.clock.now())
    return begins and not is_live


@contextmanager
def _closing_without_machine(spec: LaunchSpec, world: World, events: Events, *, applies: bool) -> Iterator[None]:
    """Close the run if its action fails, unless a machine may exist, or another offer is tried.

    Args:
        spec: the run.
        world: its ports.
        events: receives a remark about the outcome.
        applies: the failure leaves the run without a machine; False does nothing.
    """
    try:
        yield
    except (StillBillingError, UnfitMachineError):
        raise
    except KedgeError:
        if applies:
            _close_without_machine(spec, world, events)
        raise


def _close_without_machine(spec: LaunchSpec, world: World, events: Events) -> None:
    try:
        close_run(world, spec.run_id)
    except KedgeError as err:
        events(Remark(text=f"run {spec.run_id} is not closed yet: {err.what}"))
        return
    hint = "; --recover only replaces a lost machine, so launch it again" if spec.recover else ""
    events(Remark(text=f"nothing was rented, and run {spec.run_id} is closed{hint}"))


def _keeps_machine(spec: LaunchSpec, command: Command) -> bool:
    """Tell whether the machine is kept: until its deadline, a stopped command can be started on it again.

    It is kept, too, if the run has lost another one, which is replaced.
    """
    return (command.state is RunState.STOPPED and not command.met_deadline) or (spec.recover and command.lost_peer)


def _destroys(plan: Plan, action: Action) -> bool:
    """Tell whether the plan destroys an action's machine."""
    ends = {each.machine_id for each in plan.actions if isinstance(each, DestroyMachine)}
    return not isinstance(action, ExtendDeadline) and action.machine_id in ends


def _refuse_stale(plan: Plan, world: World) -> None:
    """Refuse a plan that was made before somebody else acted: it could rent a second machine."""
    if plan.revision is not None and plan.revision != world.ledger.revision(plan.run_id):
        raise ConflictError(
            f"another command has acted on run {plan.run_id} since this plan was made",
            why="the plan may be out of date; nothing was done",
            fix="run the command again: it makes a new plan",
        )
