"""Supervisors keep the runner alive without a connection: tmux, screen, nohup or systemd, behind one interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..base.calling import call, rights_over
from ..base.config import TaskContext
from ..base.errors import AgentError, RequestError
from ..base.files import write_atomically
from ..base.record import Record
from ..base.wire import LOCAL, MachineConfig
from .scope import ask_root, in_own_scope
from .terminal_guard import SCREENRC, tmux_commands

SESSION = "kedge"
UNIT = "kedge-run.service"
"""The systemd unit of a run's only task; a named task's has its name in it."""


class Supervisor(Protocol):
    """Keeps one task's command alive, which is always `kedge-agent run`."""

    def start(self, argv: Sequence[str]) -> None:
        """Start it, detached.

        Raises:
            AgentError: the supervisor refuses.
        """

    def alive(self) -> bool:
        """Whether the supervisor is still running the command."""

    def attach_argv(self) -> list[str] | None:
        """Return the argv that shows it in a terminal; None if it has no terminal."""


class Tmux(Record):
    """A window of a detached tmux session on its own socket, without the user's configuration."""

    socket: Path
    machine: MachineConfig
    name: str

    def start(self, argv: Sequence[str]) -> None:
        """Start a session, or a new window in one that is still open."""
        _private_folder(self.socket.parent)
        named = ["-n", self.name] if self.name else []
        if _succeeds(self._argv("has-session", "-t", SESSION)):
            call(self._argv("new-window", "-t", f"{SESSION}:", *named, *argv))
        else:
            session = self._argv("new-session", "-d", "-s", SESSION, *named, "-x", "200", "-y", "50", *argv)
            call(in_own_scope(self.machine, session))

    def alive(self) -> bool:
        """Whether the session has such a window."""
        return _succeeds(self._argv("list-panes", "-t", self._target))

    def attach_argv(self) -> list[str] | None:
        """Attach to the window, which asks for confirmation before a key ends the command."""
        return self._argv(*tmux_commands(), "attach-session", "-t", self._target)

    @property
    def _target(self) -> str:
        # "=" stands for the exact name.
        return f"{SESSION}:={self.name}" if self.name else f"{SESSION}:"

    def _argv(self, *arguments: str) -> list[str]:
        return ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]


class Screen(Record):
    """A detached screen session with its own socket folder, without the user's configuration."""

    folder: Path
    machine: MachineConfig
    name: str

    def start(self, argv: Sequence[str]) -> None:
        """Start a session."""
        _private_folder(self.folder)
        settings = self.folder.with_name("screenrc")
        write_atomically(settings, SCREENRC.encode())
        call(in_own_scope(self.machine, self._argv("-c", str(settings), "-dmS", self._session, *argv)))

    def alive(self) -> bool:
        """Whether the session answers."""
        return _succeeds(self._argv("-S", self._session, "-Q", "select", "."))

    def attach_argv(self) -> list[str] | None:
        """Attach, together with other attached terminals."""
        return self._argv("-x", self._session)

    @property
    def _session(self) -> str:
        return f"{SESSION}-{self.name}" if self.name else SESSION

    def _argv(self, *arguments: str) -> list[str]:
        return ["env", f"SCREENDIR={self.folder}", "screen", *arguments]


class Nohup(Record):
    """A process in its own session that ignores SIGHUP."""

    folder: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start it; its output is already in the run's log, its errors go to nohup.log."""
        with (self.folder / "nohup.log").open("ab") as complaints:
            # Nobody waits for its end here.
            subprocess.Popen(
                in_own_scope(self.machine, ["nohup", *argv]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd=self.folder,
                start_new_session=True,
            ).returncode = 0

    def alive(self) -> bool:
        """Return False: there is nothing besides the process itself."""
        return False

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None


class RootUnit(Record):
    """The system unit of a cloud machine, which root owns; it restarts after a reboot."""

    machine: MachineConfig
    name: str

    def start(self, argv: Sequence[str]) -> None:  # noqa: ARG002 - the unit file has the command
        """Ask root to start it."""
        call(ask_root(self.machine, "start", *filter(None, [self.name])))

    def alive(self) -> bool:
        """Say whether the unit is active."""
        return _succeeds(["systemctl", "is-active", "--quiet", unit_name(self.name)])

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None


class Systemd(Record):
    """A unit that is written here, a system unit or a user unit; it restarts after a reboot."""

    unit: str
    name: str
    folder: Path
    options: tuple[str, ...] = ()

    def start(self, argv: Sequence[str]) -> None:
        """Install the unit, which has the command, and start it."""
        if not self.unit.strip():
            raise RequestError(f"there is no unit that runs {argv[0]}", why="`unit` is empty")
        self._write()
        if self.options:
            # Without lingering the user's units end with the last session; it may be refused.
            _succeeds(["loginctl", "enable-linger"])
        call(self._argv("daemon-reload"))
        _succeeds(self._argv("reset-failed", self._unit))
        call(self._argv("enable", self._unit))
        call(self._argv("restart", "--no-block", self._unit))

    def alive(self) -> bool:
        """Say whether the unit is active."""
        return _succeeds(self._argv("is-active", "--quiet", self._unit))

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None

    def _write(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="kedge-", suffix=".service") as unit:
            unit.write(self.unit)
            unit.flush()
            try:
                call([*self._rights, "install", "-D", "-m", "644", unit.name, str(self.folder / self._unit)])
            except AgentError as err:
                raise AgentError(
                    f"{self.folder / self._unit} can't be written",
                    why=err.why,
                    fix="use supervisor systemd-user or tmux",
                ) from err

    @property
    def _unit(self) -> str:
        return unit_name(self.name)

    @property
    def _rights(self) -> list[str]:
        # User units are in the user's own folder, which may not exist yet.
        return [] if self.options else rights_over(self.folder)

    def _argv(self, *arguments: str) -> list[str]:
        return [*self._rights, "systemctl", *self.options, *arguments]


def unit_name(task: str) -> str:
    """Return the name of a task's systemd unit."""
    return f"kedge-run@{task}.service" if task else UNIT


def open_supervisor(context: TaskContext) -> Supervisor:
    """Return a task's supervisor.

    Raises:
        RequestError: there is no such supervisor, or its program isn't installed.
    """
    kind = context.config.supervisor
    if kind not in _KINDS:
        raise RequestError(f"there is no supervisor {kind!r}", fix=f"use one of {', '.join(_KINDS)}")
    program, package, make = _KINDS[kind]
    if shutil.which(program) is None:
        raise RequestError(
            f"supervisor {kind} needs the program {program}",
            why="it is not installed on this machine",
            fix=f"install the package {package} there, or choose supervisor nohup",
        )
    return make(context)


def _make_tmux(context: TaskContext) -> Supervisor:
    return Tmux(_sockets(context) / "tmux", context.machine, context.config.name)


def _make_screen(context: TaskContext) -> Supervisor:
    return Screen(_sockets(context) / "screen", context.machine, context.config.name)


def _sockets(context: TaskContext) -> Path:
    return Path(context.machine.sockets) if context.machine.sockets else context.layout.root / "sockets"


def _make_nohup(context: TaskContext) -> Supervisor:
    return Nohup(context.layout.root, context.machine)


def _make_systemd(context: TaskContext) -> Supervisor:
    if context.machine.provider != LOCAL:
        return RootUnit(context.machine, context.config.name)
    return Systemd(context.config.unit, context.config.name, Path("/etc/systemd/system"))


def _make_systemd_user(context: TaskContext) -> Supervisor:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Systemd(context.config.unit, context.config.name, Path(home) / "systemd/user", ("--user",))


_KINDS: Mapping[str, tuple[str, str, Callable[[TaskContext], Supervisor]]] = {
    "tmux": ("tmux", "tmux", _make_tmux),
    "screen": ("screen", "screen", _make_screen),
    "nohup": ("nohup", "coreutils", _make_nohup),
    "systemd": ("systemctl", "systemd", _make_systemd),
    "systemd-user": ("systemctl", "systemd", _make_systemd_user),
}


def _private_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _succeeds(argv: Sequence[str]) -> bool:
    try:
        call(argv)
    except AgentError:
        return False
    return True
