"""Hands the terminal over to the OpenSSH client, for ssh, exec and attach."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence

from orchestrator.adapters.host.child_environment import client_environment
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import SupervisorKind
from orchestrator.core.machine import Machine, SshAddress

# `$0` is the machine's folder. The agent writes activate.sh when it starts a run: it selects the same Python, pip and
# uv as for `setup` and `run`.
_ENTER = """\
cd "$0/code" 2>/dev/null
activate=$0/activate.sh
"""
_COMMAND = f"""\
{_ENTER}[ ! -r "$activate" ] || . "$activate"
exec "$@"
"""
# A login shell's own files may set PATH, so they are read first. Only a shell of sh's family can read activate.sh.
_SHELL = f"""\
{_ENTER}shell=${{SHELL:-sh}}
case "${{shell##*/}}" in
sh | bash | dash | ksh | zsh) [ ! -r "$activate" ] || exec "$shell" -l -c '. "$1"; exec "$0"' "$shell" "$activate" ;;
esac
exec "$shell" -l
"""


def how_to_leave(kind: SupervisorKind, environ: Mapping[str, str]) -> str:
    """Describe which keys leave a session; if this terminal is in such a session itself, those for the inner one."""
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
        app: for the connection.
        machine: where to run it.
        words: the command; empty for a shell.
        tty: give the command a terminal of its own.
        admin: connect as the user with sudo instead of the job's user: in that user's home, with the system's Python.
        options: additional options for OpenSSH.

    Returns:
        The command's exit code; 255 if the connection failed.

    Raises:
        BadRequestError: the machine has no such user.
    """
    address = machine.require_address()
    if admin:
        # Unchanged, because the job controls the machine's folder and activate.sh.
        address, said = _admin_of(machine, address), words
    else:
        said = ["sh", "-c", _COMMAND if words else _SHELL, machine.root, *words]
    # A jump host or proxy may need keys of this shell: such connections aren't kept open for later commands.
    kept = ["-o", "ControlMaster=no"] if address.is_proxied else []
    # kedge forwards nothing by itself; `-L` and the like count where the user says them.
    asked = [*options, "-o", "ClearAllForwardings=no"] if options else []
    argv = app.connector.terminal_argv(address, *(["-t"] if tty else []), *kept, *asked)
    argv += [shlex.join(said)] if said else []
    return subprocess.run(argv, env=client_environment(app.settings.environ, address), check=False).returncode


def _admin_of(machine: Machine, address: SshAddress) -> SshAddress:
    if not address.admin:
        raise BadRequestError(
            f"machine {machine.id} has no user for --admin",
            why=f"all of it belongs to {address.user}",
            fix="leave --admin out",
        )
    return address.as_admin
