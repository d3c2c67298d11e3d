"""A user's computer of a benchmark's own: folders of its own, and nothing of it left afterwards."""

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
    """A folder for code, and kedge's folders where XDG says, so that commands find them as a user's do."""

    root: Path

    @property
    def home(self) -> Path:
        """Where commands are given."""
        return self.root / "home"

    @property
    def state(self) -> Path:
        """Where kedge keeps its state."""
        return self.root / "state" / "kedge"

    @property
    def runtime(self) -> Path:
        """Where kedge keeps its sockets."""
        return self.root / "run" / "kedge"

    @property
    def env(self) -> dict[str, str]:
        """The user's environment, the venv in front."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KEDGE_")}
        return {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
        }

    def kedge(self, *words: str) -> float:
        """Run a command, and return the seconds that it took.

        Raises:
            RuntimeError: it failed.
        """
        return timed([KEDGE, *words], cwd=self.home, env=self.env)

    def wipe(self) -> None:
        """End every machine, and begin with nothing."""
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
