from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.remote.connector import SshConnector
from orchestrator.adapters.remote.places import SshPlaces
from tests.adapters.remote.sshd import Sshd, running_sshd, short_folder


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with running_sshd(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def places(tmp_path: Path) -> Iterator[SshPlaces]:
    with short_folder() as runtime:
        yield SshPlaces(pins=tmp_path / "pins with space", runtime=runtime / "run")


@pytest.fixture
def connector(places: SshPlaces) -> Iterator[SshConnector]:
    made = SshConnector(places, SystemClock())
    yield made
    made.close()
