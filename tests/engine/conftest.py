"""What the tests of several machines share: a cloud, and a desk to launch at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clocks import FakeClock
from tests.support.fake_cloud.gangs import Cloud, Desk


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(clock=FakeClock())


@pytest.fixture
def desk(tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    # Results of a run without a folder for them go where the command is run.
    monkeypatch.chdir(tmp_path)
    made = Desk(tmp_path, cloud)
    yield made
    made.ledger.close()
