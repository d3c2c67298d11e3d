from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.local.box import Box, make_box


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """A provider of its own, of whose machines nothing may be left in the end."""
    made = make_box(tmp_path / "a box")
    yield made
    for machine in made.provider().machines():
        made.provider().destroy(machine.id)
    assert made.leftovers() == []
