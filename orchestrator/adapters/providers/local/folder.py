"""A local machine's folder: its paths, and the facts that survive a crash."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.providers.local.processes import Ident, ProcessMarker, born

ENDED_FOLDER = "ended"
"""Name of the folder, beside the machines' folder, for working folders of ended machines until the next launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a machine was created with; written before anything else, so that a crash leaves a trace.

    Attributes:
        created: Unix seconds.
        lifetime: seconds.
        usd_per_hour: a decimal number as text.
        sockets: a short private folder.
        python: the interpreter that runs the agent.
        package: the folder that `orchestrator` is imported from.
        rank: its number among the machines of its run.
    """

    run_id: str
    created: float
    lifetime: float
    usd_per_hour: str
    gpus: int
    zstd: bool
    sockets: str
    python: str
    package: str
    rank: int = 0

    @property
    def deadline_at(self) -> float:
        """Unix seconds."""
        return self.created + self.lifetime

    def moved_to(self, deadline_at: float) -> Facts:
        """Return the same facts with another deadline, in Unix seconds."""
        return replace(self, lifetime=deadline_at - self.created)


@dataclass(frozen=True, slots=True)
class MachineFolder:
    """The paths and small JSON files of one machine."""

    root: Path

    @property
    def id(self) -> str:
        """The machine's id."""
        return self.root.name

    @property
    def marker(self) -> ProcessMarker:
        """The marker in the environment of each of its processes."""
        return ProcessMarker(self.id, str(self.root))

    @property
    def sshd_config(self) -> Path:
        """Written before the boot; everything but the port."""
        return self.root / "sshd_config"

    @property
    def sshd_log(self) -> Path:
        """The log of sshd."""
        return self.root / "sshd.log"

    @property
    def sshd_pid(self) -> Path:
        """Written by sshd once it listens."""
        return self.root / "sshd.pid"

    @property
    def host_key(self) -> Path:
        """The private host key; the public key is beside it."""
        return self.root / "host_key"

    @property
    def ending_file(self) -> Path:
        """Exists once the machine is being ended."""
        return self.root / "ending.json"

    @property
    def kept_working(self) -> Path:
        """Where the working folder is kept after the machine has ended; it belongs to no machine any more."""
        return self.root.parent.with_name(ENDED_FOLDER) / self.id

    @property
    def working(self) -> Path | None:
        """The folder that the command runs in; None if it is missing or a link.

        The job may have replaced any part of the path by a link: only a real folder of the machine may be moved.
        """
        releases, code = self.root / "releases", self.root / "code"
        if releases.is_symlink() or not code.is_symlink():
            return None
        release = releases / code.readlink().name
        return release if release.is_dir() and not release.is_symlink() else None

    @property
    def log(self) -> Path:
        """The log of init."""
        return self.root / "init.log"

    def facts(self) -> Facts | None:
        """Read the facts; None if they aren't written yet, or are removed already."""
        try:
            return Facts(**(self.read("provider") or {}))
        except TypeError:
            return None

    def write_facts(self, facts: Facts) -> None:
        """Write the facts."""
        self.write("provider", asdict(facts))

    def write_armed(self, facts: Facts) -> None:
        """Record the deadline that init has armed."""
        self.write("armed", {"deadline": facts.deadline_at})

    def armed(self) -> float | None:
        """Return the deadline that init has armed, in Unix seconds; None before."""
        deadline = (self.read("armed") or {}).get("deadline")
        return float(deadline) if isinstance(deadline, int | float) else None

    def known(self) -> set[Ident]:
        """Return the processes that init has recorded as the machine's, including itself; some may be gone."""
        rows = [(self.read("init") or {}).get("ident", []), *(self.read("processes") or {}).get("idents", [])]
        return {Ident(int(row[0]), float(row[1])) for row in rows if len(row) == 2}

    def write_init(self, pid: int) -> None:
        """Record which process is the machine's init."""
        self.write("init", {"ident": [pid, born(pid) or 0.0]})

    def init(self) -> Ident | None:
        """Return init; None if it is dead."""
        row = (self.read("init") or {}).get("ident")
        ident = Ident(int(row[0]), float(row[1])) if row else None
        return ident if ident and ident.is_alive and self.marker.is_on(ident.pid) else None

    def read(self, name: str) -> dict[str, Any] | None:
        """Read one of the small files; None if it is missing or truncated."""
        try:
            value = json.loads((self.root / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write one of the small files atomically."""
        write_atomically(self.root / f"{name}.json", json.dumps(value).encode())

    def tail(self, path: Path) -> str:
        """Return the last line of a log; empty for none."""
        with contextlib.suppress(OSError, IndexError):
            return path.read_text(errors="replace").strip().splitlines()[-1]
        return ""


def module_argv(facts: Facts, folder: MachineFolder, module: str) -> list[str]:
    """Return the argv that runs one of kedge's modules as a process of this machine.

    `env` sets the marker, so that the process has it from its first instruction.
    """
    return [
        "env",
        *(f"{name}={value}" for name, value in folder.marker.variables.items()),
        f"PYTHONPATH={facts.package}",
        facts.python,
        "-P",
        "-m",
        f"orchestrator.adapters.providers.local.{module}",
        str(folder.root),
    ]
