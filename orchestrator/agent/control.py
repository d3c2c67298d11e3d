"""`stop`, `kill` and `notice`: what an operator, the watch or the command itself asks of a run."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys

from . import processes, state
from .errors import AgentError
from .files import write_atomically, write_json
from .launch import print_command
from .layout import Layout
from .state import State
from .wire import STOPPED

_MARGIN_SECONDS = 20.0
DEFAULT_REASON = "asked for"


def configure_stop(parser: argparse.ArgumentParser) -> None:
    """Add `--reason`."""
    parser.add_argument("--reason", default=DEFAULT_REASON, help="why; it is shown with the state")


def configure_notice(parser: argparse.ArgumentParser) -> None:
    """Add the text."""
    parser.add_argument("text", help="what the notice says")


def stop(layout: Layout, args: argparse.Namespace) -> int:
    """Let the command checkpoint and exit, wait for that, and print its state."""
    present = request_stop(layout, args.reason)

    def is_over() -> bool:
        return not state.load(layout).runner_lives

    if not processes.wait_until(is_over, timeout=present.grace + _MARGIN_SECONDS):
        raise AgentError("the command did not stop in time", fix="end it with `kedge-agent kill`")
    print_command(state.observe(layout).command)
    return 0


def kill(layout: Layout, _args: argparse.Namespace) -> int:
    """End the command and all that it started, now, and print its state."""
    with state.changing(layout):
        present = state.load(layout)
        below = processes.descendants(present.runner) if present.runner_lives else []
        if present.runner_lives:
            processes.signal_all([present.runner, *below], signal.SIGKILL)
        if present.command.is_live:
            with contextlib.suppress(OSError):
                state.save(layout, present.turned(STOPPED, reason="killed"))
    if not state.end_processes(present):
        raise AgentError("some of the command's processes would not die", fix="end the machine")
    print_command(state.load(layout).command)
    return 0


def notice(layout: Layout, args: argparse.Namespace) -> int:
    """Tell the command to checkpoint and go on."""
    write_atomically(layout.notice_file, f"{args.text}\n".encode(errors="surrogateescape"))
    return 0


def request_stop(layout: Layout, reason: str) -> State:
    """Ask a live runner to stop, without waiting; a live state whose runner is dead becomes stopped."""
    with state.changing(layout):
        present = state.load(layout)
        if not present.command.is_live:
            return present
        # The note outlives a runner that dies before it has answered, and is there for one that just begins.
        with contextlib.suppress(OSError):  # a full disk must not keep a command from being stopped
            write_json(layout.note("stop"), {"reason": reason})
        if present.runner_lives:
            processes.signal_all([present.runner], signal.SIGTERM)
            return present
        state.save(layout, present.turned(STOPPED, reason=reason))
    if not state.end_processes(present):
        sys.stderr.write("some of the command's processes would not die\n")
    return state.load(layout)
