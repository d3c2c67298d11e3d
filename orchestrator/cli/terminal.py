"""Hands the terminal to the OpenSSH client: ssh, exec, attach."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence

from orchestrator.adapters.children import client_environment
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import SupervisorKind
from orchestrator.core.machine import Machine, SshAddress

# `$0` is the machine's folder. The agent writes activate.sh when it starts a run: with it, the same Python, pip and uv
# are found as by `setup` and `run`.
_ENTER = """\
cd "$0/code" 2>/dev/null
activate=$0/activate.sh
"""
_COMMAND = f"""\
{_ENTER}[ ! -r "$activate" ] || . "$activate"
exec "$@"
"""
# A login shell's own files may set PATH, and are read first. A shell that isn't of sh's family can't read activate.sh.
_SHELL = f"""\
{_ENTER}shell=${{SHELL:-sh}}
case "${{shell##*/}}" in
sh | bash | dash | ksh | zsh) [ ! -r "$activate" ] || exec "$shell" -l -c '. "$1"; exec "$0"' "$shell" "$activate" ;;
esac
exec "$shell" -l
"""


def how_to_leave(kind: SupervisorKind, environ: Mapping[str, str]) -> str:
    """Say which keys leave a session; inside a session of the user's own it is the inner one that is meant."""
    prefix, outer = ("Ctrl-a", "STY") if kind is SupervisorKind.SCREEN else ("Ctrl-b", "TMUX")
    is_inside = bool(environ.get(outer))
    again = "a" if kind is SupervisorKind.SCREEN else prefix
    keys = f"{prefix} {again} d" if is_inside else f"{prefix} d"
    return f"{keys} leaves, and the run goes on; Ctrl-C asks before it stops the run"


def run_in_terminal(
    app: App,
    machine: Machine,
    words: Sequence[str],
    *,
    tty: bool,
    admin: bool = False,
    options: Sequence[str] = (),
) -> int:
    """Run a command in the machine's working folder, with this terminal's input and output and the run's Python.

    Args:
        app: for the way in.
        machine: where to run it.
        words: the command; empty for a shell.
        tty: give the command a terminal of its own.
        admin: enter as the user who has sudo, not as the job's: in that user's own folder, with the system's Python.
        options: more of OpenSSH's own.

    Returns:
        The command's exit code; 255 where the connection failed.

    Raises:
        BadRequestError: the machine has no such user.
    """
    address = machine.require_address()
    if admin:
        # As it is: in the machine's folder, and in activate.sh, the job says what a shell does.
        address, said = _admin_of(machine, address), words
    else:
        said = ["sh", "-c", _COMMAND if words else _SHELL, machine.root, *words]
    # What leads through somebody else may need keys of this shell's: no connection with them is kept open.
    kept = ["-o", "ControlMaster=no"] if address.is_proxied else []
    argv = app.connector.terminal_argv(address, *(["-t"] if tty else []), *kept, *options)
    argv += [shlex.join(said)] if said else []
    return subprocess.run(argv, env=client_environment(app.settings.environ, address), check=False).returncode


def _admin_of(machine: Machine, address: SshAddress) -> SshAddress:
    if not address.admin:
        raise BadRequestError(
            f"machine {machine.id} has no user for administration",
            why=f"all of it belongs to {address.user}",
            fix="leave --admin out",
        )
    return address.as_admin
