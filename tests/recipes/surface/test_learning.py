"""It learns: on generated sheets it reaches what no constant prediction reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.learning.bar import QUIET, learn
from benchmarks.learning.surface import SHORT


@pytest.mark.timeout(900)
def test_surface_learns_sheets_from_blobs_and_noise(tmp_path: Path) -> None:
    """The shortened bar, one seed; benchmarks/bench_recipes.py has the full one, over three seeds."""
    learnt = learn(SHORT, tmp_path, seed=0, settings=QUIET)
    assert learnt.untrained < SHORT.reach
    assert SHORT.is_reached(learnt.value), learnt
