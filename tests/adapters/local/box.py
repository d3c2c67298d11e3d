"""A local provider with its own folder, and what tests do with its machines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.adapters.providers.local.layout import sockets_folder
from orchestrator.adapters.providers.local.processes import Ident, born, find_markers, ident
from orchestrator.adapters.providers.local.provider import LocalProvider
from orchestrator.core.machine import Machine, MachineOrder
from tests.adapters.local.standin import standin_agent
from tests.support.orders import changed, make_offer


def eventually(is_so: Callable[[], bool], what: str, limit_s: float = 60) -> None:
    """Wait for a condition, and fail if it doesn't become true in time."""
    end = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


@dataclass(frozen=True)
class Box:
    """One provider under test."""

    base: Path

    @property
    def key(self) -> Path:
        return self.base / "key"

    @property
    def state_dir(self) -> Path:
        return self.base / "state"

    def provider(self) -> LocalProvider:
        return LocalProvider(
            state_dir=self.state_dir,
            runtime_dir=self.base / "run",
            clock=SystemClock(),
            key_file=self.key,
            environ=os.environ,
        )

    def order(self, machine_id: str = "run-1a2b-m1", **changes: Any) -> MachineOrder:
        """Make an order; by default for a machine that ends itself after two minutes."""
        values: dict[str, Any] = {
            "id": machine_id,
            "run_id": machine_id.rpartition("-m")[0],
            "offer": make_offer("local", "local", "local"),
            "lifetime_seconds": 120,
            "authorized_key": self.key.with_suffix(".pub").read_text(),
            "agent_archive": standin_agent(),
            "store_url": "",
        }
        return changed(MachineOrder(**values), **changes)

    def folder(self, machine_id: str = "run-1a2b-m1") -> MachineFolder:
        return MachineFolder(self.state_dir.resolve() / "machines" / machine_id)

    def ssh_argv(self, machine: Machine) -> list[str]:
        """Return the OpenSSH client's argv, with the machine's host key as the only one that is accepted."""
        address = machine.address
        assert address is not None
        known = self.base / f"known-{machine.id}"
        known.write_text(f"[{address.host}]:{address.port} {address.host_key}\n")
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f'UserKnownHostsFile="{known}"']
        argv = ["ssh", "-F", "none", "-i", address.key_file, "-p", str(address.port)]
        return [*argv, *(f"-o{option}" for option in options), f"{address.user}@{address.host}"]

    def ssh(self, machine: Machine, script: str) -> str:
        argv = [*self.ssh_argv(machine), script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_process(self, machine: Machine, script: str) -> Ident:
        """Run a script that starts a process and writes its pid to $PID_FILE; return the process."""
        pid_file = self.base / f"pid-{time.monotonic_ns()}"
        self.ssh(machine, f"export PID_FILE='{pid_file}'; {script}")
        eventually(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the process starts")
        return ident(int(pid_file.read_text()))

    def leftovers(self) -> list[str]:
        """List what is left of any machine: processes, folders, sockets.

        A process that is replacing its program shows neither command line nor environment for an instant, and sshd
        rewrites its command line. So each is listed by its pid, and found by its parent, too.
        """
        below = str(self.state_dir.resolve())
        lines = ((process, process.info["cmdline"]) for process in psutil.process_iter(["cmdline"]))
        found = {process.pid for process, line in lines if below in " ".join(line or [])}
        found |= {pid for pid, marker in find_markers().items() if marker.root.startswith(below)}
        processes = [f"process {pid}" for pid in sorted(found | find_children(found))]
        folders = [*(self.state_dir / "machines").glob("*"), *(self.base / "run").glob("*")]
        sockets = sockets_folder((self.base / "run").resolve(), self.folder().root)
        folders += [sockets] if sockets.exists() else []
        return processes + [str(folder) for folder in folders]


def find_children(pids: set[int]) -> set[int]:
    """Return the living descendants of processes."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {child.pid for child in psutil.Process(pid).children(recursive=True) if born(child.pid)}
    return found


def make_box(base: Path) -> Box:
    """Make a folder with a key in it, and return its box."""
    base.mkdir(parents=True, exist_ok=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / "key")]
    subprocess.run(argv, check=True, timeout=30)
    return Box(base)
