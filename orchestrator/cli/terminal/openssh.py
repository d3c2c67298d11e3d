"""Hands the terminal over to the OpenSSH client, for ssh, exec and attach."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.adapters.host.child_environment import client_environment
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.protocol.task_folder import TaskFolder
from orchestrator.core.task import SupervisorKind

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
# The runner of a task writes this script at each start of its command: it enters the task's folder.
_TASK_COMMAND = """\
script=$0/$1
[ -r "$script" ] || { echo "kedge: this task has not started on the machine yet" >&2; exit 1; }
shift
activate=$0/activate.sh
[ ! -r "$activate" ] || . "$activate"
. "$script"
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
    task: TaskFolder | None = None,
) -> int:
    """Run a command in the machine's working folder, with this terminal's input and output and the run's Python.

    Args:
        app: for the connection.
        machine: where to run it.
        words: the command; empty for a shell.
        tty: give the command a terminal of its own.
        admin: connect as the user with sudo instead of the job's user: in that user's home, with the system's Python.
        options: additional options for OpenSSH.
        task: run the command in the working folder of the task with these folders, with its variables and GPUs.

    Returns:
        The command's exit code; 255 if the connection failed.

    Raises:
        BadRequestError: the machine has no such user.
    """
    # kedge forwards nothing by itself; `-L` and the like count where the user says them.
    asked = [*options, "-o", "ClearAllForwardings=no"] if options else []
    client = make_client(app, machine, words, options=[*(["-t"] if tty else []), *asked], admin=admin, task=task)
    return subprocess.run(client.argv, env=client.environ, check=False).returncode


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An OpenSSH client that runs a command on a machine."""

    argv: list[str]
    environ: Mapping[str, str]


def make_client(
    app: App,
    machine: Machine,
    words: Sequence[str],
    *,
    options: Sequence[str] = (),
    admin: bool = False,
    task: TaskFolder | None = None,
) -> Client:
    """Return the client for a command; if the machine doesn't answer, have it opened to this computer first.

    The arguments are those of `run_in_terminal`.

    Raises:
        BadRequestError: the machine has no such user.
        UnreachableError: it has no address yet.
    """
    address = machine.require_address()
    if admin:
        # Unchanged, because the job controls the machine's folder and activate.sh.
        address, said = _admin_of(machine, address), words
    elif task is not None:
        said = ["sh", "-c", _TASK_COMMAND, machine.root, task.shell, *words]
    else:
        said = ["sh", "-c", _COMMAND if words else _SHELL, machine.root, *words]
    # A jump host or proxy may need keys of this shell: such connections aren't kept open for later commands.
    kept = ["-o", "ControlMaster=no"] if address.is_proxied else []
    argv = app.connector.terminal_argv(address, *kept, *options)
    argv += [shlex.join(said)] if said else []
    return Client(argv=argv, environ=client_environment(app.settings.environ, address))


def _admin_of(machine: Machine, address: SshAddress) -> SshAddress:
    if not address.admin:
        raise BadRequestError(
            f"machine {machine.id} has no user for --admin",
            why=f"all of it belongs to {address.user}",
            fix="leave --admin out",
        )
    return address.as_admin
