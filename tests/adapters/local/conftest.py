"""Fixture: a local provider with its own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.local.box import Box, make_box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A provider with its own folder; the test fails if anything is left of its machines."""
    made = make_box(tmp_path / "a box")
    yield made
    for machine in made.provider().machines():
        made.provider().destroy(machine.id)
    assert made.leftovers() == []
