"""A user's laptop: it runs the real kedge program with its own state folder, and real machines on this computer."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.providers.local.provider import LocalProvider
from tests.support.json_schemas import require_documented
from tests.support.preloaded.process import ROOT, PreloadedProcess, but_for_a_sample, run

TRAIN = Path(__file__).parents[1] / "e2e" / "train.py"
"""A user's training script."""
CHAOS = Path(__file__).parents[1] / "chaos"
"""Programs that run kedge and kill it, or change its clock."""

KEDGE = (
    *(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "orchestrator").rglob("*.py"))
        if not {"agent", "__main__.py", "__init__.py"} & set(path.relative_to(ROOT).parts)
    ),
    "tests.support.preloaded.sdk",
)
"""The modules that the preload server for kedge imports: all of kedge, boto3 with its descriptions, and paramiko."""

_TOLD = (".log", "state.json", "manifest.json")
_MOST_TOLD = 4000


@dataclass
class Laptop:
    """A user's computer: a folder with code, and kedge's own folders."""

    home: Path
    state: Path
    runtime: Path
    program: list[str] = field(default_factory=lambda: [sys.executable, "-m", "orchestrator.cli"])
    extra_env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    preload: tuple[str, ...] = KEDGE
    """What its commands are forked with; empty: they are started anew."""

    @property
    def env(self) -> dict[str, str]:
        """The user's environment."""
        return {
            **os.environ,
            "KEDGE_STATE_DIR": str(self.state),
            "KEDGE_RUNTIME_DIR": str(self.runtime),
            "KEDGE_SSH_CONFIG": str(self.home / "ssh_config"),
            "COLUMNS": "140",
            **self.extra_env,
        }

    def kedge(self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> str:
        """Run a command; return its standard output."""
        done = run(
            [*self.program, *words],
            preload=but_for_a_sample(self.preload),
            cwd=self.home,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            timeout=600,
        )
        self.errors = done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        assert code is None or done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str, code: int | None = 0) -> Any:
        """Run a command with --json; validate its output against docs/json and parse it."""
        found = json.loads(self.kedge(*words, "--json", code=code))
        require_documented(words[0], found)
        return found

    def start(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command in the background, until the test's end at the latest."""
        process = PreloadedProcess(
            [*self.program, *words],
            preload=but_for_a_sample(self.preload),
            cwd=self.home,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End the commands that a failed test has left running."""
        for process in self.started:
            with process:
                process.kill()

    def drive(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of the programs of tests/chaos as the user would run kedge."""
        return run(
            [sys.executable, str(CHAOS / script), *words],
            preload=but_for_a_sample(KEDGE),
            cwd=self.home,
            env=self.env,
            timeout=600,
        )

    def write_job(self, text: str) -> None:
        """Write the user's kedge.yaml."""
        (self.home / "kedge.yaml").write_text(textwrap.dedent(text))

    def ledger(self) -> SqliteLedger:
        """Open the ledger."""
        return SqliteLedger(self.state, SystemClock())

    def provider(self) -> LocalProvider:
        """Open the local provider."""
        return LocalProvider(
            state_dir=self.state,
            runtime_dir=self.runtime,
            clock=SystemClock(),
            key_file=self.state / "keys" / "id_ed25519",
            environ=os.environ,
        )

    def processes(self, machine: str = "") -> list[psutil.Process]:
        """List the living processes of this laptop's machines, or of one of them."""
        root = str(self.state / "machines" / machine)
        return [process for process in psutil.process_iter() if process.pid != os.getpid() and _is_of(process, root)]


def describe_machines(laptop: Laptop) -> str:
    """Return the ends of the logs and small records of its machines, to explain a failed test."""
    machines = laptop.state / "machines"
    texts = [f"machines: {sorted(path.name for path in machines.glob('*'))}"]
    for path in sorted(file for suffix in _TOLD for file in machines.rglob(f"*{suffix}")):
        with contextlib.suppress(OSError):
            texts.append(
                f"--- {path.relative_to(machines)}\n{path.read_bytes()[-_MOST_TOLD:].decode(errors='replace')}"
            )
    for process in laptop.processes():
        with contextlib.suppress(psutil.Error):
            texts.append(f"process {process.pid}, {process.status()}: {shlex.join(process.cmdline())[:300]}")
    return "\n".join(texts)


@contextmanager
def clean_laptop(folder: Path) -> Iterator[Laptop]:
    """Make a laptop in a folder; at the end, its commands and machines are ended."""
    home = folder / "home"
    home.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="kedge-e2e-"))
    laptop = Laptop(home=home, state=folder / "state", runtime=runtime)
    shutil.copy(TRAIN, home / "train.py")
    yield laptop
    laptop.end()
    provider = laptop.provider()
    for machine in provider.machines():
        provider.destroy(machine.id)
    remove_runtime(runtime)


def remove_runtime(folder: Path) -> None:
    """Remove a folder in which SSH clients, whose machines have just ended, may be removing their sockets."""
    while folder.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _is_of(process: psutil.Process, root: str) -> bool:
    try:
        marked = process.environ().get("KEDGE_MACHINE_ROOT", "").startswith(root)
        return marked or any(root in word for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
