"""Ends the machine: for `end`, and for the watch at the deadline."""

from __future__ import annotations

import subprocess
import sys

from ..base.errors import AgentError, RequestError
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.wire import MachineConfig

_TIMEOUT_SECONDS = 60.0


def execute(layout: Layout) -> int:
    """Run the machine's end command now.

    Raises:
        RequestError: the machine has none.
        AgentError: the command failed.
    """
    machine = read_machine_config(layout)
    if not machine.end_command:
        raise RequestError("this machine can't end itself", fix="end it with `kedge teardown`")
    end_this_machine(layout, machine)
    sys.stdout.write("the end of the machine was requested\n")
    return 0


def end_this_machine(layout: Layout, machine: MachineConfig) -> None:
    """Run the end command; its output goes to end.log.

    Raises:
        AgentError: it could not be run, failed, or took too long.
    """
    try:
        with (layout.root / "end.log").open("ab") as log:
            done = _run(machine, log.fileno())
    except OSError:
        # A full disk must not keep a machine alive.
        done = _run(machine, subprocess.DEVNULL)
    if done != 0:
        raise AgentError("the end command failed", why=f"exit code {done}")


def _run(machine: MachineConfig, output: int) -> int:
    try:
        return subprocess.run(
            list(machine.end_command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as err:
        raise AgentError("the end command could not be run", why=str(err)) from err
