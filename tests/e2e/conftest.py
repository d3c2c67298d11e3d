"""A run that is there."""

from __future__ import annotations

import pytest

from tests.e2e.runs import JOB
from tests.support.laptop import Laptop


@pytest.fixture
def run(laptop: Laptop) -> str:
    """A run that goes on and on."""
    laptop.write_job(JOB % "nohup")
    return str(laptop.json("launch", "--yes", "--detach", "--price", "1.99")["run"])
