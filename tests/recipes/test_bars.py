"""When a learning bar counts as met."""

from __future__ import annotations

from typing import Literal

import pytest

from benchmarks.bench_recipes import is_bar_met
from benchmarks.learning.bar import LearningBar, Learnt


@pytest.mark.parametrize(
    ("better", "value", "untrained", "seconds", "met"),
    [
        ("max", 0.9, 0.1, 60, True),
        ("max", 0.7, 0.1, 60, False),
        ("max", 0.9, 0.85, 60, False),  # the bar tells nothing: what has learnt nothing reaches it
        ("max", 0.9, 0.1, 181, False),
        ("min", 0.7, 0.9, 60, True),
        ("min", 0.7, 0.75, 60, False),
    ],
)
def test_bar_is_met_in_time_and_out_of_reach_without_learning(
    better: Literal["min", "max"], value: float, untrained: float, seconds: float, met: bool
) -> None:
    """Whichever direction is the better one."""
    bar = LearningBar(
        recipe="r", count=1, settings=(), metric="m", better=better, reach=0.8, untrained=lambda _: untrained
    )
    learnt = Learnt(value=value, untrained=untrained, seconds=seconds, written=1, fetched=1)
    assert is_bar_met(bar, learnt) is met
