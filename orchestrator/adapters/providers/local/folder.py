"""A local machine's folder: what lies where, and the facts that outlive a crash."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.adapters.files import write_atomically
from orchestrator.adapters.providers.local.processes import Ident, Mark, born

STAYING = "ended"
"""Beside the folder of machines: working folders of machines that have ended, until the next one begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a machine was created with. It is written before anything else, so that a crash leaves a trace.

    Attributes:
        created: Unix seconds.
        lifetime: seconds.
        usd_per_hour: a decimal number as text.
        sockets: a short private folder.
        python: the interpreter that runs the agent.
        package: the folder that `orchestrator` is imported from.
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

    @property
    def deadline(self) -> float:
        """Unix seconds."""
        return self.created + self.lifetime


@dataclass(frozen=True, slots=True)
class MachineFolder:
    """The paths and small JSON files of one machine."""

    root: Path

    @property
    def id(self) -> str:
        """The machine's id."""
        return self.root.name

    @property
    def mark(self) -> Mark:
        """What each of its processes carries in its environment."""
        return Mark(self.id, str(self.root))

    @property
    def sshd_config(self) -> Path:
        """Written before the boot; everything but the port."""
        return self.root / "sshd_config"

    @property
    def sshd_log(self) -> Path:
        """What sshd says."""
        return self.root / "sshd.log"

    @property
    def sshd_pid(self) -> Path:
        """Written by sshd once it listens."""
        return self.root / "sshd.pid"

    @property
    def host_key(self) -> Path:
        """The private host key; the public one lies beside it."""
        return self.root / "host_key"

    @property
    def ending(self) -> Path:
        """There once the machine is being ended."""
        return self.root / "ending.json"

    @property
    def stays(self) -> Path:
        """Where the folder that the command ran in stays when the machine has ended; no machine's any more."""
        return self.root.parent.with_name(STAYING) / self.id

    @property
    def working(self) -> Path | None:
        """The folder that the command runs in; None where there is none, or a link in the place of one.

        The job may have replaced any of these: what is moved is never something that lies elsewhere.
        """
        releases, code = self.root / "releases", self.root / "code"
        if releases.is_symlink() or not code.is_symlink():
            return None
        release = releases / code.readlink().name
        return release if release.is_dir() and not release.is_symlink() else None

    @property
    def log(self) -> Path:
        """What init says."""
        return self.root / "init.log"

    def facts(self) -> Facts | None:
        """Read the facts; None where there are none yet, or no more."""
        try:
            return Facts(**(self.read("provider") or {}))
        except TypeError:
            return None

    def write_facts(self, facts: Facts) -> None:
        """Write the facts."""
        self.write("provider", asdict(facts))

    def known(self) -> set[Ident]:
        """Return the processes that init wrote down as the machine's, itself included; some may be gone."""
        rows = [(self.read("init") or {}).get("ident", []), *(self.read("processes") or {}).get("idents", [])]
        return {Ident(int(row[0]), float(row[1])) for row in rows if len(row) == 2}

    def write_init(self, pid: int) -> None:
        """Note which process is the machine's init."""
        self.write("init", {"ident": [pid, born(pid) or 0.0]})

    def init(self) -> Ident | None:
        """Return init, where it is alive."""
        row = (self.read("init") or {}).get("ident")
        ident = Ident(int(row[0]), float(row[1])) if row else None
        return ident if ident and ident.is_alive and self.mark.is_on(ident.pid) else None

    def read(self, name: str) -> dict[str, Any] | None:
        """Read one of the small files; None where it is missing or cut short."""
        try:
            value = json.loads((self.root / f"{name}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write one of the small files: whole, or not at all."""
        write_atomically(self.root / f"{name}.json", json.dumps(value).encode())

    def tail(self, path: Path) -> str:
        """Return the last line of a log, empty for none."""
        with contextlib.suppress(OSError, IndexError):
            return path.read_text(errors="replace").strip().splitlines()[-1]
        return ""


def module_argv(facts: Facts, folder: MachineFolder, module: str) -> list[str]:
    """Return the argv that runs one of kedge's modules as a process of this machine.

    `env` sets the mark, so that the process carries it from its first instruction.
    """
    return [
        "env",
        *(f"{name}={value}" for name, value in folder.mark.variables.items()),
        f"PYTHONPATH={facts.package}",
        facts.python,
        "-P",
        "-m",
        f"orchestrator.adapters.providers.local.{module}",
        str(folder.root),
    ]
