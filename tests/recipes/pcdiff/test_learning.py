"""The shortened learning bar; benchmarks/bench_recipes.py has the full one over three seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.learning.bar import QUIET, learn
from benchmarks.learning.pcdiff import SHORT


@pytest.mark.timeout(900)
def test_learns_what_no_blob_reaches(tmp_path: Path) -> None:
    """The noise in implants for skulls that it hasn't seen."""
    learnt = learn(SHORT, tmp_path, seed=0, settings=QUIET)
    assert SHORT.is_reached(learnt.value), learnt
    assert not SHORT.is_reached(learnt.untrained), learnt
