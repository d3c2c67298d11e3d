"""A laptop for a benchmark: its own folders, which are removed afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import BIN, scratch_folder, timed
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.local.provider import LocalProvider

KEDGE = str(BIN / "kedge")


@dataclass(frozen=True)
class BenchLaptop:
    """A folder for code, and kedge's folders where the XDG variables say, so that commands find them as a user's do."""

    root: Path

    @property
    def home(self) -> Path:
        """Return the folder in which commands are run."""
        return self.root / "home"

    @property
    def state(self) -> Path:
        """Return kedge's state folder."""
        return self.root / "state" / "kedge"

    @property
    def runtime(self) -> Path:
        """Return the folder of kedge's sockets."""
        return self.root / "run" / "kedge"

    @property
    def env(self) -> dict[str, str]:
        """Return the user's environment, with the venv first on PATH."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEDGE_")}
        return {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
        }

    def kedge(self, *words: str) -> float:
        """Run a command, and return how many seconds it took.

        Raises:
            RuntimeError: it failed.
        """
        return timed([KEDGE, *words], cwd=self.home, env=self.env)

    def wipe(self) -> None:
        """End every machine, and start from empty folders."""
        provider = LocalProvider(
            state_dir=self.state,
            runtime_dir=self.runtime,
            clock=SystemClock(),
            key_file=self.state / "keys" / "id_ed25519",
        )
        for machine in provider.machines():
            provider.destroy(machine.id)
        self._end_ssh_clients()
        for folder in (self.home, self.state, self.runtime):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)

    def _end_ssh_clients(self) -> None:
        for socket in (self.runtime / "ssh").glob("*"):
            argv = ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "any"]
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)


@contextlib.contextmanager
def bench_laptop() -> Iterator[BenchLaptop]:
    """Lend a laptop; its machines and folders are gone afterwards."""
    with scratch_folder() as folder:
        laptop = BenchLaptop(folder)
        laptop.wipe()
        try:
            yield laptop
        finally:
            laptop.wipe()
