"""`stop`, `kill` and `notice`: requests of the operator, the watch or the command itself."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import processes, state
from ..base.config import choose_tasks, configure_tasks
from ..base.errors import AgentError
from ..base.files import read_json, write_atomically, write_json
from ..base.layout import Layout, TaskLayout
from ..base.parse import read_machine_config
from ..base.polling import poll_until
from ..base.state import State
from ..base.wire import STOPPED

if TYPE_CHECKING:
    import argparse

_MARGIN_SECONDS = 20.0
DEFAULT_REASON = "asked for"


def configure_stop(parser: argparse.ArgumentParser) -> None:
    """Add `--task` and `--reason`."""
    configure_tasks(parser)
    parser.add_argument("--reason", default=DEFAULT_REASON, help="the reason, which is shown with the state")


def configure_notice(parser: argparse.ArgumentParser) -> None:
    """Add `--task` and the text."""
    configure_tasks(parser)
    parser.add_argument("text", help="the notice's text")


def stop(layout: Layout, args: argparse.Namespace) -> int:
    """Let the commands checkpoint and exit, wait for their end, and print their state."""
    tasks = list(choose_tasks(layout, args.task).values())
    # All are asked before one is waited for.
    grace = max(request_stop(task, args.reason).grace for task in tasks)

    def are_over() -> bool:
        return not any(state.load(task).runner_lives for task in tasks)

    if not poll_until(are_over, seconds=grace + _MARGIN_SECONDS):
        raise AgentError("the command did not stop in time", fix="end it with `kedge-agent kill`")
    state.print_command(state.together(state.observe(task).command for task in tasks))
    return 0


def kill(layout: Layout, args: argparse.Namespace | None = None) -> int:
    """Kill the commands and all of their processes now, and print their state."""
    tasks = list(choose_tasks(layout, args.task if args else ()).values())
    are_gone = [state.end_processes(_kill(task)) for task in tasks]
    if not all(are_gone):
        raise AgentError("some of the command's processes could not be killed", fix="end the machine")
    state.print_command(state.together(state.load(task).command for task in tasks))
    return 0


def notice(layout: Layout, args: argparse.Namespace) -> int:
    """Ask the commands to checkpoint and continue."""
    give_notice(layout, args.text, args.task)
    return 0


def give_notice(layout: Layout, text: str, names: Sequence[str] = ()) -> None:
    """Write the notice of these tasks, or of all."""
    for task in choose_tasks(layout, names).values():
        write_atomically(task.notice_file, f"{text}\n".encode(errors="surrogateescape"))


def request_stop(task: TaskLayout, reason: str) -> State:
    """Ask a live runner to stop, without waiting; a live state without a live runner becomes stopped."""
    with state.changing(task):
        present = state.load(task)
        if not present.command.is_live:
            return present
        # The file survives a runner that dies before it reacts, and reaches one that is just starting.
        with contextlib.suppress(OSError):  # a full disk must not keep a command from being stopped
            write_json(task.note("stop"), {"reason": reason})
        if present.runner_lives:
            processes.signal_all([present.runner], signal.SIGTERM)
            return present
        state.save(task, present.turned(STOPPED, reason=reason))
    if not state.end_processes(present):
        sys.stderr.write("some of the command's processes could not be killed\n")
    return state.load(task)


def seconds_left(layout: Layout, grace: float) -> float:
    """Return how long a command has that is stopped now: its grace period, or less if the machine ends before."""
    notice = read_json(layout.note("spot")).get("notice")
    ends = read_machine_config(layout).deadline_at
    if isinstance(notice, int | float) and notice:
        ends = min(ends, notice)
    left = ends - time.time()
    return grace if grace <= left else max(0, int(left))


def _kill(task: TaskLayout) -> State:
    """Kill a task's runner and its children, and return the state before; other processes of the task remain."""
    with state.changing(task):
        present = state.load(task)
        below = processes.descendants(present.runner) if present.runner_lives else []
        if present.runner_lives:
            processes.signal_all([present.runner, *below], signal.SIGKILL)
        if present.command.is_live:
            with contextlib.suppress(OSError):
                state.save(task, present.turned(STOPPED, reason="killed"))
    return present
