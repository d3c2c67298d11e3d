"""Fixtures: a real sshd, kedge's SSH files and connector, and a connection by each transport."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ssh.connector import SshConnector
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.ports import Remote
from tests.adapters.remote.sshd import Sshd, open_remote, running_sshd, short_folder, wait_until


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def ssh_files(tmp_path: Path) -> Iterator[SshFiles]:
    with short_folder() as runtime:
        yield SshFiles(pins=tmp_path / "pins with space", runtime=runtime / "run")


@pytest.fixture
def connector(ssh_files: SshFiles) -> Iterator[SshConnector]:
    made = SshConnector(ssh_files, SystemClock())
    yield made
    made.close()


@pytest.fixture(params=["fabric", "openssh over a master", "openssh alone"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def remote(transport: str, sshd: Sshd, ssh_files: SshFiles, connector: SshConnector) -> Iterator[Remote]:
    if transport == "openssh over a master":
        connector.connect(sshd.address)
        wait_until(lambda: answers(ssh_files.control_socket(sshd.address)))
        connector.close()
    made = open_remote(transport, sshd.address, ssh_files)
    yield made
    made.close()
