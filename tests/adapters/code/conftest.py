from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.adapters.sync.code.source import GitCodeSource
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.wire import MachineConfig
from tests.adapters.remote.sshd import Sshd, running_sshd, short_folder


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def connector(tmp_path: Path) -> Iterator[SshConnector]:
    with short_folder() as runtime:
        made = SshConnector(SshFiles(pins=tmp_path / "pins", runtime=runtime / "run"), SystemClock())
        yield made
        made.close()


@dataclass(frozen=True)
class Box:
    """A machine that runs the real agent, and the laptop's state for it."""

    machine: Machine
    root: Path
    remote: Remote
    state: Path

    @property
    def code(self) -> Path:
        return self.root / "code"

    def hash_in_place(self) -> str:
        """Return the hash of the machine's code, as the agent reports it."""
        return self.remote.run([self.machine.agent, "code-hash"]).stdout.decode().strip()

    def source(self, workdir: Path | None, **extras: Path) -> GitCodeSource:
        return GitCodeSource(workdir, state=self.state, clock=SystemClock(), extras=extras)

    def sync(self, workdir: Path | None, **extras: Path) -> tuple[str, int]:
        """Send the code; return its hash and how many bytes of content were sent."""
        sent = [0]
        code_hash = self.source(workdir, **extras).send(
            self.remote, self.machine, lambda done, _total: sent.append(done)
        )
        return code_hash, max(sent)


@pytest.fixture
def box(tmp_path: Path, sshd: Sshd, connector: SshConnector) -> Box:
    root = tmp_path / "the machine's root"
    now = datetime.now(UTC)
    machine = Machine(
        id="run-1-m1",
        run_id="run-1",
        provider="test",
        provider_id="1",
        state=MachineState.READY,
        root=str(root),
        created_at=now,
        deadline_at=now + timedelta(hours=1),
        usd_per_hour=Decimal(0),
        address=sshd.address,
        zstd=True,
    )
    install_agent(machine, root)
    return Box(machine=machine, root=root, remote=connector.connect(sshd.address), state=tmp_path / "state")


def install_agent(machine: Machine, root: Path) -> None:
    root.mkdir()
    config = MachineConfig(
        machine=machine.id,
        run=machine.run_id,
        provider=machine.provider,
        root=str(root),
        created=machine.created_at.timestamp(),
        deadline_at=machine.deadline_at.timestamp(),
        usd_per_hour="0",
    )
    (root / "machine.json").write_bytes(msgspec.json.encode(config))
    with tarfile.open(fileobj=BytesIO(agent_archive())) as tar:
        tar.extractall(root / "agent", filter="data")
    argv = [sys.executable, "-m", "kedge_agent", "install", "--root", str(root)]
    subprocess.run(argv, cwd=root / "agent", check=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A git work tree with one tracked file."""
    folder = tmp_path / "my work"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("print('hello')\n")
    git(folder, "add", "-A")
    return folder


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)
