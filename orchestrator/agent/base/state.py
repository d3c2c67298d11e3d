"""The state of each task's command on disk (state.json): its runner writes it, everybody else reads it."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from . import processes
from .config import GateNote, earlier_modes, list_tasks, of_one_mode, present_mode, read_gate, read_next_mode
from .errors import RequestError
from .files import locked, read_json, write_json
from .layout import Layout, TaskLayout
from .parse import build
from .record import Record, to_json
from .wire import (
    FAILED,
    IDLE,
    RESTARTING,
    RUNNING,
    SETTING_UP,
    SPOT_NOTICE,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    WAITING,
    Command,
    ModeReport,
)

LOCK_SECONDS = 10.0
WATCH_IS_DEAD_AFTER = 15.0
RUNNER_DIED = "the runner died"
REBOOTED = "the machine was rebooted"
SHUTDOWN_SIGNALS = ("SIGTERM", "SIGHUP")
"""What systemd sends at a shutdown; a stop that somebody has asked for has a note as well (run/control.py)."""

_ORDER = (RUNNING, STOPPING, RESTARTING, SETTING_UP, WAITING, FAILED, STOPPED, SUCCEEDED, IDLE)
"""The state of several tasks together is the first of these that one of them has."""


class State(Record):
    """The command's state, and its processes.

    Attributes:
        runner: the runner's process id; 0 before the first start.
        runner_identity: distinguishes it from a later process with the same id.
        group: the command's process group; 0 for none; `group_identity` is its leader's identity.
        mark: the marker in the environment of the command's processes.
        release: the folder under releases/ in which it runs.
        restarts: the number of restarts allowed.
        grace: seconds between SIGTERM and SIGKILL.
    """

    command: Command = Command()
    runner: int = 0
    runner_identity: str = ""
    group: int = 0
    group_identity: str = ""
    mark: str = ""
    release: str = ""
    restarts: int = 0
    grace: float = 60.0

    @property
    def runner_lives(self) -> bool:
        """Whether the runner is alive."""
        return processes.is_same(self.runner, self.runner_identity)

    @property
    def needs_runner(self) -> bool:
        """Whether a runner should be alive: a task that waits for another one has none yet."""
        return self.command.is_live and self.command.state != WAITING

    @property
    def has_succeeded(self) -> bool:
        """Whether the command has succeeded, although its runner may still be copying files that were left behind."""
        return self.command.is_live and self.command.exit_code == 0

    def turned(self, state: str, *, reason: str = "") -> State:
        """Return this state with another command state, as of now."""
        return self.replace(command=self.command.replace(state=state, reason=reason, since=time.time()))


def load(task: TaskLayout) -> State:
    """Read the state as it was last written, idle if there is none; what only a reboot has stopped is restarting."""
    found = _read(task)
    if not _was_shut_down(task, found):
        return found
    command = found.command.replace(state=RESTARTING, reason=REBOOTED, exit_code=None)
    return found.replace(command=command)


def _read(task: TaskLayout) -> State:
    """Read the file, each version of it once: the watch looks at every task several times a second."""
    path = task.state_file
    version = _version_of(path)
    if path in _read_before and _read_before[path][0] == version:
        return _read_before[path][1]
    found = _parse(path)
    # The next version of a file that was written just now may have the same time, size and inode.
    if time.time_ns() - version[0] > _DISTINCT_NS:
        _read_before[path] = version, found
    return found


_read_before: dict[Path, tuple[tuple[int, int, int], State]] = {}
_DISTINCT_NS = 10**9


def _version_of(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _parse(path: Path) -> State:
    content = read_json(path)
    try:
        command = build(Command, content.pop("command", {}))
        if command.state not in _ORDER:
            return State()
        return State(command=command, **{name: content[name] for name in _OWN_FIELDS if name in content})
    except (RequestError, TypeError):
        return State()


def _was_shut_down(task: TaskLayout, state: State) -> bool:
    """Whether the machine was shut down while the command ran, and has booted again; a restart must be left."""
    command = state.command
    return (
        command.state in (STOPPING, STOPPED)
        and command.reason in SHUTDOWN_SIGNALS
        and command.attempt <= state.restarts
        and _is_of_earlier_boot(state)
        and not task.note("stop").exists()
    )


def _is_of_earlier_boot(state: State) -> bool:
    boot = processes.boot_id()
    return bool(boot and state.runner_identity) and not state.runner_identity.startswith(f"{boot}:")


def save(task: TaskLayout, state: State) -> None:
    """Write the state atomically and durably."""
    write_json(task.state_file, to_json(state), durable=True)


@contextmanager
def changing(task: TaskLayout) -> Iterator[None]:
    """Hold the lock for changing the state."""
    with locked(task.lock("state"), timeout=LOCK_SECONDS):
        yield


def observe(task: TaskLayout) -> State:
    """Return the current state: corrected if the runner has died without writing it."""
    state = load(task)
    if not state.needs_runner or state.runner_lives:
        return state
    again = load(task)
    if again != state:
        return again
    # Right after a boot the watch may not have begun yet.
    return after_runner_death(state, recovers=_watch_lives(task.machine) or _is_of_earlier_boot(state))


class RunState(NamedTuple):
    """A run in its present mode.

    Attributes:
        command: the state of its tasks together, unless another mode follows them.
        tasks: the state of each, by its key.
        sequence: how many modes came before.
        earlier: those modes, and how they have ended.
    """

    command: Command
    tasks: Mapping[str, Command] = MappingProxyType({})
    sequence: int = 0
    mode: str = ""
    earlier: Sequence[ModeReport] = ()


def observe_run(layout: Layout) -> RunState:
    """Return the state of the run."""

    def read() -> RunState:
        tasks = {task.key: observe(task).command for task in list_tasks(layout).values()}
        return RunState(of_run(layout, tasks.values()), tasks, *present_mode(layout), earlier_modes(layout))

    return of_one_mode(layout, read)


def of_run(layout: Layout, commands: Iterable[Command]) -> Command:
    """Return the state of a run whose present tasks have these: it isn't over while another mode follows."""
    command = together(commands)
    following = read_next_mode(layout) if command.state == SUCCEEDED else None
    if following is None:
        return command
    gate = read_gate(layout)
    if gate.sequence != present_mode(layout)[0]:
        gate = GateNote()
    if gate.state:
        # Another machine hasn't finished this mode, so that no other one follows.
        return command.replace(state=gate.state, reason=gate.reason, since=gate.since)
    return command.replace(state=WAITING, reason=gate.reason or f"mode {following.mode or 'run'} starts next")


def load_all(layout: Layout) -> list[State]:
    """Read the states of all of the run's present tasks as they were last written."""
    return [load(task) for task in list_tasks(layout).values()]


def together(commands: Iterable[Command]) -> Command:
    """Return the one state that several tasks have together, which is that of one of them.

    It is over once all are over: failed if one has failed, else stopped if one was stopped. If one was stopped because
    the machine is being reclaimed, it is stopped, because the run goes on elsewhere, even if another one has failed.
    """
    found = list(commands)
    first = min(found, key=lambda command: (_rank(command), -command.since))
    since = max(command.since for command in found) if first.is_over else first.since
    started = min((command.started for command in found if command.started), default=0.0)
    return first.replace(since=since, started=started)


def _rank(command: Command) -> float:
    is_reclaimed = command.state == STOPPED and command.reason == SPOT_NOTICE
    return _ORDER.index(FAILED) - 0.5 if is_reclaimed else _ORDER.index(command.state)


def after_runner_death(state: State, *, recovers: bool) -> State:
    """Return the state that follows from a live one when its runner is dead.

    Args:
        state: the last state that the runner wrote.
        recovers: the watch will restart the command, if restarts remain.
    """
    if state.command.state == STOPPING:
        return state.turned(STOPPED, reason=state.command.reason)
    if state.has_succeeded:
        return state.turned(SUCCEEDED)
    if recovers and state.command.attempt <= state.restarts:
        if state.command.state == RESTARTING:
            return state
        return state.turned(RESTARTING, reason=f"{RUNNER_DIED}; the watch restarts it")
    return state.turned(FAILED, reason=RUNNER_DIED)


def find_processes(state: State) -> list[int]:
    """List a command's remaining processes, by their marker and by their process group.

    A group's id is only reused by a new leader: another leader means that the command's group is gone.
    """
    found = set(processes.find_marked(state.mark)) if state.mark else set()
    if state.group and processes.identify(state.group) in ("", state.group_identity):
        found.update(processes.members(state.group))
    return sorted(found)


def end_processes(state: State, *, timeout: float = 5.0) -> bool:
    """SIGKILL a command's remaining processes; False if some are still alive."""
    if state.group and not processes.can_list():
        processes.signal_group(state.group, signal.SIGKILL)
    return processes.kill_until_gone(lambda: find_processes(state), timeout=timeout)


def fresh(supervisor: str, restarts: int, grace: float) -> State:
    """Return the state before the first attempt."""
    command = Command(state=IDLE, supervisor=supervisor, since=time.time())
    return State(command=command, restarts=restarts, grace=grace)


def print_command(command: Command) -> None:
    """Print the command's state as one line of JSON."""
    sys.stdout.write(json.dumps(to_json(command)) + "\n")


def _watch_lives(layout: Layout) -> bool:
    beat = read_json(layout.note("heartbeat")).get("time", 0)
    return isinstance(beat, int | float) and time.time() - beat < WATCH_IS_DEAD_AFTER


_OWN_FIELDS = tuple(name for name in State.fields if name != "command")
