"""Follows logs and reports, and reconnects at the same place of each log after a broken connection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.policy.recovery import describe_end
from orchestrator.core.protocol.report import Command, MachineReport, RunState
from orchestrator.core.protocol.stream import FollowEvent
from orchestrator.engine import agent_client
from orchestrator.engine.observing.observe import why_ended
from orchestrator.engine.world import World

_PAUSE = timedelta(seconds=1)
_PATIENCE = timedelta(minutes=5)
"""How long a machine may be unreachable without interruption before following is given up."""


RESTARTING = "restarting"
"""The reason for stopping a command that is started again at once, so that following continues."""

_RESTART = timedelta(minutes=5)

_OVERDUE = timedelta(minutes=30)
"""How late a machine may end: its own deadline timer starts with its boot, and powering off takes minutes."""


class MachineLostError(UnreachableError):
    """The provider reports that the machine is gone, or broken for good.

    Attributes:
        is_other: it is another machine of the run than the one that is followed.
    """

    is_other = False


class OverdueError(KedgeError):
    """The machine still runs after its deadline: its own deadline timer doesn't work."""


def follow(
    world: World, machine: Machine, *, offsets: Mapping[str, int], tasks: Sequence[str] = (), until_over: bool
) -> Iterator[FollowEvent]:
    """Yield the logs of tasks, or of all, and the machine's reports; a broken connection is opened again.

    Args:
        world: the run's ports.
        machine: the machine.
        offsets: how many bytes of each log to skip, by the task's name; the machine's log has none.
        tasks: the names of the tasks.
        until_over: end when these tasks are over.

    Raises:
        MachineLostError: the machine is gone.
        OverdueError: it is still running long after its deadline.
        UnreachableError: the machine exists, but was unreachable for too long.
    """
    reached_at = world.clock.now()
    present = dict(offsets)
    commands: list[Command] = []
    while True:
        try:
            for event in _follow_once(world, machine, present, tasks, until_over=until_over):
                present[event.task] = event.offset
                reached_at = world.clock.now()
                commands = commands_of(event.report, tasks) if event.report else commands
                yield event
                machine = _refuse_overdue(world, machine, reached_at)
        except OverdueError:
            raise
        except KedgeError as err:
            refuse_lost(world, machine)
            if not isinstance(err, UnreachableError) or world.clock.now() - reached_at > _PATIENCE:
                raise
            world.clock.sleep(_PAUSE)
        else:
            if not is_restarting(commands, world.clock.now()):
                return
            world.clock.sleep(_PAUSE)


def refuse_lost(world: World, machine: Machine) -> None:
    """Ask the provider about a machine that doesn't do what it should.

    Raises:
        MachineLostError: it is gone or broken.
    """
    there = world.provider.describe(machine.id)
    if there is None or there.state is MachineState.UNKNOWN:
        raise lost(world, machine, "gone" if there is None else "lost") from None


def lost(world: World, machine: Machine, how: str = "gone") -> MachineLostError:
    """Make the error that tells what happened to a machine, and how to continue."""
    end = why_ended(world, machine.id)
    unknown = "its deadline passed, it ended itself, or somebody ended it"
    return MachineLostError(
        f"machine {machine.id} is {how}",
        why=describe_end(machine.provider, end) if end else unknown,
        fix=f"see `kedge status {machine.run_id}`; go on with `kedge resume {machine.run_id}`",
    )


def commands_of(report: MachineReport, tasks: Sequence[str]) -> list[Command]:
    """Return the commands of tasks, or of all."""
    return [task.command for name, task in report.each_task.items() if not tasks or name in tasks]


def is_restarting(commands: Sequence[Command], now: datetime) -> bool:
    """Tell whether a command was stopped only in order to start it again."""
    return any(_restarts(command, now) for command in commands)


def _restarts(command: Command, now: datetime) -> bool:
    since = datetime.fromtimestamp(command.since, tz=now.tzinfo)
    return command.state is RunState.STOPPED and command.reason == RESTARTING and now - since < _RESTART


def _refuse_overdue(world: World, machine: Machine, now: datetime) -> Machine:
    """Return the machine with its present deadline: another command may have moved it since the following began."""
    if now - machine.deadline_at > _OVERDUE:
        recorded = world.ledger.machines(machine.run_id)
        machine = next((each for each in recorded if each.id == machine.id), machine)
    if now - machine.deadline_at > _OVERDUE:
        raise OverdueError(
            f"machine {machine.id} has not ended at its deadline",
            why="its deadline timer is broken, or somebody has taken the machine over",
            fix=f"end it with `kedge teardown {machine.run_id}`",
        )
    return machine


def _follow_once(
    world: World, machine: Machine, offsets: Mapping[str, int], tasks: Sequence[str], *, until_over: bool
) -> Iterator[FollowEvent]:
    remote = world.connector.connect(machine.require_address())
    yield from agent_client.follow(remote, machine, offsets, tasks, until_over=until_over)
