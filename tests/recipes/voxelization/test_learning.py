"""The recipe learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.learning.bar import QUIET, learn
from benchmarks.learning.voxelization import SHORT


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_skulls_are_reconstructed_better_than_by_any_guess(tmp_path: Path) -> None:
    """After 90 steps: better than all bone, than the mean skull, and than the untrained network."""
    learnt = learn(SHORT, tmp_path, seed=0, settings=QUIET)
    assert SHORT.is_reached(learnt.value), learnt
    assert not SHORT.is_reached(learnt.untrained), learnt
