"""Fixtures of several suites."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laptop import TRAIN, Laptop

# A background job of a shell ignores SIGINT, and so does all that it starts: the programs under test must not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    """A laptop on which nothing may be left when the test ends."""
    home = tmp_path / "home"
    home.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="kedge-e2e-"))
    laptop = Laptop(home=home, state=tmp_path / "state", runtime=runtime)
    shutil.copy(TRAIN, home / "train.py")
    yield laptop
    provider = laptop.provider()
    for machine in provider.machines():
        provider.destroy(machine.id)
    shutil.rmtree(runtime)
