"""Hands the terminal to the OpenSSH client: ssh, exec, attach."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from orchestrator.app.root import App
from orchestrator.core.machine import Machine


def run_in_terminal(app: App, machine: Machine, words: Sequence[str], *, tty: bool) -> int:
    """Run a command in the machine's working folder, with this terminal's input and output.

    Args:
        app: for the way in.
        machine: where to run it.
        words: the command; empty for a shell.
        tty: give the command a terminal of its own.

    Returns:
        The command's exit code; 255 where the connection failed.
    """
    argv = app.connector.terminal_argv(machine.require_address(), *(["-t"] if tty else []))
    script = 'cd "$0" 2>/dev/null; ' + ('exec "$@"' if words else 'exec "${SHELL:-sh}" -l')
    return subprocess.run(
        [*argv, shlex.join(["sh", "-c", script, f"{machine.root}/code", *words])], check=False
    ).returncode
