"""A control group of its own for a command that outlives whatever starts it: a scope of systemd's."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from .ask import ask_root
from .wire import LOCAL, MachineConfig

_SYSTEMD = Path("/run/systemd/system")

# The shell asks root for a scope around itself, waits until it is in there, and becomes the command: whatever that
# forks is in the scope too. Where the scope is refused, the command starts all the same, in the group of its starter.
_ENTER = """\
ask=$1
shift
# Words of kedge's own: the shell is to part them.
if $ask $$ >/dev/null 2>&1; then
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        grep -q kedge-run-$$- /proc/$$/cgroup && break
        sleep 0.2
    done
fi
exec "$@"
"""


def in_own_scope(machine: MachineConfig, argv: Sequence[str], *, systemd: Path = _SYSTEMD) -> list[str]:
    """Return what to call so that the command starts in a scope of its own; itself where there is no systemd to ask.

    A local machine's processes are found by their ancestors and end with it: they get none.

    Args:
        machine: on which it starts.
        argv: the command.
        systemd: a folder that is there where systemd is the machine's first process.
    """
    if machine.provider == LOCAL or not systemd.is_dir():
        return list(argv)
    return ["sh", "-c", _ENTER, "kedge-scope", shlex.join(ask_root(machine, "scope")), *argv]
