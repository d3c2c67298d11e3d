"""The command's state on disk (state.json): the runner writes it, everybody else reads it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import processes
from .errors import RequestError
from .files import locked, read_json, write_json
from .layout import Layout
from .parse import build
from .record import Record
from .wire import FAILED, IDLE, RESTARTING, STOPPED, STOPPING, SUCCEEDED, Command, to_json

LOCK_SECONDS = 10.0
WATCH_IS_DEAD_AFTER = 15.0
RUNNER_DIED = "the runner died"


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
    def has_succeeded(self) -> bool:
        """Whether the command has succeeded, although its runner may still be copying files that were left behind."""
        return self.command.is_live and self.command.exit_code == 0

    def turned(self, state: str, *, reason: str = "") -> State:
        """Return this state with another command state, as of now."""
        return self.replace(command=self.command.replace(state=state, reason=reason, since=time.time()))


def load(layout: Layout) -> State:
    """Read the state as it was last written; idle if there is none."""
    content = read_json(layout.state_file)
    try:
        command = build(Command, content.pop("command", {}))
        return State(command=command, **{name: content[name] for name in _OWN_FIELDS if name in content})
    except (RequestError, TypeError):
        return State()


def save(layout: Layout, state: State) -> None:
    """Write the state atomically and durably."""
    write_json(layout.state_file, to_json(state), durable=True)


@contextmanager
def changing(layout: Layout) -> Iterator[None]:
    """Hold the lock for changing the state."""
    with locked(layout.lock("state"), timeout=LOCK_SECONDS):
        yield


def observe(layout: Layout) -> State:
    """Return the current state: corrected if the runner has died without writing it."""
    state = load(layout)
    if not state.command.is_live or state.runner_lives:
        return state
    again = load(layout)
    if again != state:
        return again
    return after_runner_death(state, recovers=_watch_lives(layout))


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


def _watch_lives(layout: Layout) -> bool:
    beat = read_json(layout.note("heartbeat")).get("time", 0)
    return isinstance(beat, int | float) and time.time() - beat < WATCH_IS_DEAD_AFTER


_OWN_FIELDS = tuple(name for name in State.fields if name != "command")
