"""`stop`, `kill` and `notice`: requests of the operator, the watch or the command itself."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from ..base import processes, state
from ..base.errors import AgentError
from ..base.files import write_atomically, write_json
from ..base.layout import Layout
from ..base.polling import poll_until
from ..base.state import State
from ..base.wire import STOPPED
from .start import print_command

if TYPE_CHECKING:
    import argparse

_MARGIN_SECONDS = 20.0
DEFAULT_REASON = "asked for"


def configure_stop(parser: argparse.ArgumentParser) -> None:
    """Add `--reason`."""
    parser.add_argument("--reason", default=DEFAULT_REASON, help="the reason, which is shown with the state")


def configure_notice(parser: argparse.ArgumentParser) -> None:
    """Add the text."""
    parser.add_argument("text", help="the notice's text")


def stop(layout: Layout, args: argparse.Namespace) -> int:
    """Let the command checkpoint and exit, wait for its end, and print its state."""
    present = request_stop(layout, args.reason)

    def is_over() -> bool:
        return not state.load(layout).runner_lives

    if not poll_until(is_over, seconds=present.grace + _MARGIN_SECONDS):
        raise AgentError("the command did not stop in time", fix="end it with `kedge-agent kill`")
    print_command(state.observe(layout).command)
    return 0


def kill(layout: Layout) -> int:
    """Kill the command and all of its processes now, and print its state."""
    with state.changing(layout):
        present = state.load(layout)
        below = processes.descendants(present.runner) if present.runner_lives else []
        if present.runner_lives:
            processes.signal_all([present.runner, *below], signal.SIGKILL)
        if present.command.is_live:
            with contextlib.suppress(OSError):
                state.save(layout, present.turned(STOPPED, reason="killed"))
    if not state.end_processes(present):
        raise AgentError("some of the command's processes could not be killed", fix="end the machine")
    print_command(state.load(layout).command)
    return 0


def notice(layout: Layout, args: argparse.Namespace) -> int:
    """Ask the command to checkpoint and continue."""
    write_atomically(layout.notice_file, f"{args.text}\n".encode(errors="surrogateescape"))
    return 0


def request_stop(layout: Layout, reason: str) -> State:
    """Ask a live runner to stop, without waiting; a live state whose runner is dead becomes stopped."""
    with state.changing(layout):
        present = state.load(layout)
        if not present.command.is_live:
            return present
        # The file survives a runner that dies before it reacts, and reaches one that is just starting.
        with contextlib.suppress(OSError):  # a full disk must not keep a command from being stopped
            write_json(layout.note("stop"), {"reason": reason})
        if present.runner_lives:
            processes.signal_all([present.runner], signal.SIGTERM)
            return present
        state.save(layout, present.turned(STOPPED, reason=reason))
    if not state.end_processes(present):
        sys.stderr.write("some of the command's processes could not be killed\n")
    return state.load(layout)
