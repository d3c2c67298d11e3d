"""Carries out a plan: an intent in the ledger before every action, its outcome after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from orchestrator.core.actions import (
    CreateMachine,
    DestroyMachine,
    FollowCommand,
    StageCode,
    StageData,
    StartCommand,
)
from orchestrator.core.errors import ConflictError, KedgeError, StillBillingError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.plan import Plan, refuse_snapshot
from orchestrator.core.report import Command, RunState
from orchestrator.engine.events import ActionBegan, ActionEnded, Events, Remark
from orchestrator.engine.performing import Performer, Progress
from orchestrator.engine.reconcile import close_run
from orchestrator.engine.world import World

_LOOKERS = timedelta(seconds=5)
"""How long a command waits for one that only looks, such as `status`, which settles the ledger."""

_OTHERS = timedelta(minutes=10)
"""How long the end of a launch waits for another command that acts on the same run."""

_Preparation = StageData | StageCode | CreateMachine
"""What comes before there is a machine, or may be one."""


def apply(plan: Plan, spec: LaunchSpec, world: World, events: Events) -> Progress:
    """Carry out a plan's actions in order, under the run's lock, which is let go while a command is followed.

    A failure leaves a ledger from which `resume` or `teardown` goes on. A command that was stopped, by
    whomever, ends the plan early, and its machine stays; at its deadline the machine is ended, since one that only
    powers off may bill on. A plan that ends with nothing left closes the run, and so does
    one that makes a run live and then gets no machine.

    Raises:
        ConflictError: another command is at work on the run, or has been since the plan was made.
        UnreachableError: the plan's offers come from a snapshot; nothing was done.
        KedgeError: an action failed.
    """
    refuse_snapshot(plan)
    performer = Performer(spec, world, events)
    with ExitStack() as held:
        held.enter_context(world.ledger.lock(spec.run_id, wait=_LOOKERS))
        _refuse_stale(plan, world)
        is_new = _open_run(plan, spec, world)
        for number, action in enumerate(plan.actions, 1):
            events(ActionBegan(number=number, action=action))
            if isinstance(action, FollowCommand):
                held.close()
                note = performer.follow(action)
                held.enter_context(world.ledger.lock(spec.run_id, wait=_OTHERS))
            else:
                with _closing_unborn(spec, world, events, applies=is_new and isinstance(action, _Preparation)):
                    note = performer.perform(action, ends=_destroys(plan, action.machine_id))
            events(ActionEnded(number=number, action=action, note=note))
            if isinstance(action, FollowCommand) and _stays(performer.progress.command):
                return performer.progress
        if plan.ends:
            for line in close_run(world, spec.run_id):
                events(Remark(text=line))
    performer.progress.finished = True
    return performer.progress


def _open_run(plan: Plan, spec: LaunchSpec, world: World) -> bool:
    """Make the run live where a machine or a command begins, and record what is changed of one that is live.

    Returns:
        Whether the run was not live before.
    """
    record = world.ledger.run(spec.run_id)
    is_live = record is not None and record.stage is RunStage.LIVE
    begins = any(isinstance(action, CreateMachine | StartCommand) for action in plan.actions)
    if begins or (record is not None and is_live and record.spec != spec):
        world.ledger.open_run(spec, world.clock.now())
    return begins and not is_live


@contextmanager
def _closing_unborn(spec: LaunchSpec, world: World, events: Events, *, applies: bool) -> Iterator[None]:
    """Close a run that gets no machine, unless one may exist all the same."""
    try:
        yield
    except StillBillingError:
        raise
    except KedgeError:
        if applies:
            _close_unborn(spec, world, events)
        raise


def _close_unborn(spec: LaunchSpec, world: World, events: Events) -> None:
    try:
        close_run(world, spec.run_id)
    except KedgeError as err:
        events(Remark(text=f"run {spec.run_id} is not closed yet: {err.what}"))
        return
    hint = ": --recover replaces machines that a run has had, launch it again" if spec.recover else ""
    events(Remark(text=f"nothing was rented, and run {spec.run_id} is closed{hint}"))


def _stays(command: Command) -> bool:
    """A command that somebody has stopped may be started again on its machine, unless the machine's time is over."""
    return command.state is RunState.STOPPED and not command.met_deadline


def _destroys(plan: Plan, machine_id: str) -> bool:
    return any(isinstance(action, DestroyMachine) and action.machine_id == machine_id for action in plan.actions)


def _refuse_stale(plan: Plan, world: World) -> None:
    """A plan that was made before somebody else acted could rent a second machine."""
    if plan.mark is not None and plan.mark != world.ledger.mark(plan.run_id):
        raise ConflictError(
            f"another command has acted on run {plan.run_id} since this plan was made",
            why="what was planned may not be what is needed any more; nothing was done",
            fix="give the same command again: it looks anew",
        )
