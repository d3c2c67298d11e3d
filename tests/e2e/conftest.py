"""A run for commands to act on."""

from __future__ import annotations

import pytest

from tests.e2e.runs import JOB
from tests.support.laptop import Laptop


@pytest.fixture
def run(laptop: Laptop) -> str:
    """A run that doesn't end by itself."""
    laptop.write_job(JOB % "nohup")
    return str(laptop.json("launch", "--yes", "--detach", "--price", "1.99")["run"])
