"""What keeps the runner alive when nobody is connected: tmux, screen, nohup or systemd, behind one interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .ask import ask_root
from .calling import call, rights_over
from .errors import AgentError, RequestError
from .files import write_atomically
from .guarded import SCREENRC, tmux_commands
from .layout import Layout
from .scope import in_own_scope
from .wire import LOCAL, MachineConfig, RunConfig

SESSION = "kedge"
UNIT = "kedge-run.service"


class Supervisor(Protocol):
    """Keeps one command alive. The command is always `kedge-agent run`."""

    def start(self, argv: Sequence[str]) -> None:
        """Start it, detached.

        Raises:
            AgentError: the supervisor refuses.
        """

    def alive(self) -> bool:
        """Say whether the supervisor still holds something."""

    def attach_argv(self) -> list[str] | None:
        """Return what to execute to see it in a terminal; None where there is nothing to see."""


@dataclass(frozen=True)
class Tmux:
    """A detached tmux session on a socket of its own, without the user's configuration."""

    socket: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start a session; into one that somebody kept open comes a new window."""
        _private_folder(self.socket.parent)
        if self.alive():
            call(self._argv("new-window", "-t", SESSION, *argv))
        else:
            session = self._argv("new-session", "-d", "-s", SESSION, "-x", "200", "-y", "50", *argv)
            call(in_own_scope(self.machine, session))

    def alive(self) -> bool:
        """Say whether the session is there."""
        return _succeeds(self._argv("has-session", "-t", SESSION))

    def attach_argv(self) -> list[str] | None:
        """Attach to the session, which asks before a key ends the command."""
        return self._argv(*tmux_commands(), "attach-session", "-t", SESSION)

    def _argv(self, *arguments: str) -> list[str]:
        return ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]


@dataclass(frozen=True)
class Screen:
    """A detached screen session in a socket folder of its own, without the user's configuration."""

    folder: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start a session."""
        _private_folder(self.folder)
        settings = self.folder.with_name("screenrc")
        write_atomically(settings, SCREENRC.encode())
        call(in_own_scope(self.machine, self._argv("-c", str(settings), "-dmS", SESSION, *argv)))

    def alive(self) -> bool:
        """Say whether the session answers."""
        return _succeeds(self._argv("-S", SESSION, "-Q", "select", "."))

    def attach_argv(self) -> list[str] | None:
        """Attach beside whoever else is attached."""
        return self._argv("-x", SESSION)

    def _argv(self, *arguments: str) -> list[str]:
        return ["env", f"SCREENDIR={self.folder}", "screen", *arguments]


@dataclass(frozen=True)
class Nohup:
    """A process that no hang-up reaches, in a session of its own."""

    folder: Path
    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:
        """Start it; what it prints is in the run's log already, what it complains of goes to nohup.log."""
        with (self.folder / "nohup.log").open("ab") as complaints:
            # Its own end is nobody's to wait for here.
            subprocess.Popen(
                in_own_scope(self.machine, ["nohup", *argv]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd=self.folder,
                start_new_session=True,
            ).returncode = 0

    def alive(self) -> bool:
        """There is no holder beside the process itself."""
        return False

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None


@dataclass(frozen=True)
class RootsUnit:
    """The unit of a cloud machine's system, whose text is root's; it comes back after a reboot."""

    machine: MachineConfig

    def start(self, argv: Sequence[str]) -> None:  # noqa: ARG002 - its text says what is run
        """Let root start it."""
        call(ask_root(self.machine, "start"))

    def alive(self) -> bool:
        """Say whether the unit is active."""
        return _succeeds(["systemctl", "is-active", "--quiet", UNIT])

    def attach_argv(self) -> list[str] | None:
        """There is no terminal."""
        return None


@dataclass(frozen=True)
class Systemd:
    """A unit that is written here, of a system at home or of the user; it comes back after a reboot."""

    unit: str
    folder: Path
    options: tuple[str, ...] = ()

    def start(self, argv: Sequence[str]) -> None:
        """Install the unit and start it; its text says what is run."""
        if not self.unit.strip():
            raise RequestError(f"there is no unit that runs {argv[0]}", why="`unit` is empty")
        self._write()
        if self.options:
            # Else the user's units end when the last connection does; where it is refused, that holds.
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
        # The user's own units are in the user's own folder, which may not be there yet.
        return [] if self.options else rights_over(self.folder)

    def _argv(self, *arguments: str) -> list[str]:
        return [*self._rights, "systemctl", *self.options, *arguments]


def open_supervisor(kind: str, layout: Layout, machine: MachineConfig, config: RunConfig) -> Supervisor:
    """Return the supervisor of a kind.

    Raises:
        RequestError: there is no such kind, or its program isn't installed.
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
        return RootsUnit(machine)
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
