"""Starts a command in its own systemd scope (control group), so that it survives the service that starts it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..base.wire import LOCAL, MachineConfig

_SYSTEMD = Path("/run/systemd/system")

# The shell asks root for a scope around itself, waits until it is in it, and execs the command, whose children are in
# the scope too. If the scope is refused, the command starts anyway, in the control group of its parent.
_ENTER = """\
ask=$1
shift
# Unquoted on purpose: the shell splits it into words, all of them kedge's own.
if $ask $$ >/dev/null 2>&1; then
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        grep -q kedge-run-$$- /proc/$$/cgroup && break
        sleep 0.2
    done
fi
exec "$@"
"""


def in_own_scope(machine: MachineConfig, argv: Sequence[str], *, systemd: Path = _SYSTEMD) -> list[str]:
    """Return an argv that starts the command in its own scope; the command itself if there is no systemd.

    A local machine's processes are found by their ancestors and end with it, so they get no scope.

    Args:
        machine: the machine.
        argv: the command.
        systemd: a folder that exists if systemd is the machine's init.
    """
    if machine.provider == LOCAL or not systemd.is_dir():
        return list(argv)
    return ["sh", "-c", _ENTER, "kedge-scope", shlex.join(ask_root(machine, "scope")), *argv]


def ask_root(machine: MachineConfig, *request: str) -> list[str]:
    """Return the argv that asks root's script for something; it decides what the job may do. Cloud machines only."""
    return ["sudo", "-n", "/bin/sh", f"{machine.root}/boot/ask.sh", *request]
