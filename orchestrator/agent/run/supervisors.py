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
from ..base.errors import AgentError, RequestError
from ..base.files import write_atomically
from ..base.layout import Layout
from ..base.record import Record
from ..base.wire import LOCAL, MachineConfig, RunConfig
from .scope import ask_root, in_own_scope
from .terminal_guard import SCREENRC, tmux_commands

SESSION = "kedge"
UNIT = "kedge-run.service"


class Supervisor(Protocol):
    """Keeps one command alive, which is always `kedge-agent run`."""

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
    """A detached tmux session on its own socket, without the user's configuration."""

    socket: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start a session, or a new window in one that is still open."""
        _private_folder(self.socket.parent)
        if self.alive():
            call(self._argv("new-window", "-t", SESSION, *argv))
        else:
            session = self._argv("new-session", "-d", "-s", SESSION, "-x", "200", "-y", "50", *argv)
            call(in_own_scope(self.machine, session))

    def alive(self) -> bool:
        """Whether the session exists."""
        return _succeeds(self._argv("has-session", "-t", SESSION))

    def attach_argv(self) -> list[str] | None:
        """Attach to the session, which asks for confirmation before a key ends the command."""
        return self._argv(*tmux_commands(), "attach-session", "-t", SESSION)

    def _argv(self, *arguments: str) -> list[str]:
        return ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]


class Screen(Record):
    """A detached screen session with its own socket folder, without the user's configuration."""

    folder: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start a session."""
        _private_folder(self.folder)
        settings = self.folder.with_name("screenrc")
        write_atomically(settings, SCREENRC.encode())
        call(in_own_scope(self.machine, self._argv("-c", str(settings), "-dmS", SESSION, *argv)))

    def alive(self) -> bool:
        """Whether the session answers."""
        return _succeeds(self._argv("-S", SESSION, "-Q", "select", "."))

    def attach_argv(self) -> list[str] | None:
        """Attach, together with other attached terminals."""
        return self._argv("-x", SESSION)

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

    def start(self, argv: Sequence[str]) -> None:  # noqa: ARG002 - the unit file has the command
        """Ask root to start it."""
        call(ask_root(self.machine, "start"))

    def alive(self) -> bool:
        """Say whether the unit is active."""
        return _succeeds(["systemctl", "is-active", "--quiet", UNIT])

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None


class Systemd(Record):
    """A unit that is written here, a system unit or a user unit; it restarts after a reboot."""

    unit: str
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
        _succeeds(self._argv("reset-failed", UNIT))
        call(self._argv("enable", UNIT))
        call(self._argv("restart", "--no-block", UNIT))

    def alive(self) -> bool:
        """Say whether the unit is active."""
        return _succeeds(self._argv("is-active", "--quiet", UNIT))

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None

    def _write(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="kedge-", suffix=".service") as unit:
            unit.write(self.unit)
            unit.flush()
            try:
                call([*self._rights, "install", "-D", "-m", "644", unit.name, str(self.folder / UNIT)])
            except AgentError as err:
                raise AgentError(
                    f"{self.folder / UNIT} can't be written", why=err.why, fix="use supervisor systemd-user or tmux"
                ) from err

    @property
    def _rights(self) -> list[str]:
        # User units are in the user's own folder, which may not exist yet.
        return [] if self.options else rights_over(self.folder)

    def _argv(self, *arguments: str) -> list[str]:
        return [*self._rights, "systemctl", *self.options, *arguments]


def open_supervisor(kind: str, layout: Layout, machine: MachineConfig, config: RunConfig) -> Supervisor:
    """Return a supervisor by its kind.

    Raises:
        RequestError: the kind is unknown, or its program isn't installed.
    """
    if kind not in _KINDS:
        raise RequestError(f"there is no supervisor {kind!r}", fix=f"use one of {', '.join(_KINDS)}")
    program, package, make = _KINDS[kind]
    if shutil.which(program) is None:
        raise RequestError(
            f"supervisor {kind} needs the program {program}",
            why="it is not installed on this machine",
            fix=f"install the package {package} there, or choose supervisor nohup",
        )
    return make(layout, machine, config)


def _sockets(layout: Layout, machine: MachineConfig) -> Path:
    return Path(machine.sockets) if machine.sockets else layout.root / "sockets"


def _make_systemd(_layout: Layout, machine: MachineConfig, config: RunConfig) -> Supervisor:
    if machine.provider != LOCAL:
        return RootUnit(machine)
    return Systemd(config.unit, Path("/etc/systemd/system"))


def _make_systemd_user(_layout: Layout, _machine: MachineConfig, config: RunConfig) -> Supervisor:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Systemd(config.unit, Path(home) / "systemd/user", ("--user",))


_KINDS: Mapping[str, tuple[str, str, Callable[[Layout, MachineConfig, RunConfig], Supervisor]]] = {
    "tmux": ("tmux", "tmux", lambda layout, machine, _: Tmux(_sockets(layout, machine) / "tmux", machine)),
    "screen": ("screen", "screen", lambda layout, machine, _: Screen(_sockets(layout, machine) / "screen", machine)),
    "nohup": ("nohup", "coreutils", lambda layout, machine, _: Nohup(layout.root, machine)),
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
