"""How many cases of a long enumeration a run tries: a sample that is drawn from a seed, or all in `make nightly`."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from tests.support.box_cache import ALL

Case = TypeVar("Case")
_SEED = 12


def part_of(cases: Sequence[Case], count: int) -> list[Case]:
    """Draw so many of the cases, the same ones each time and in their order; all of them in `make nightly`."""
    if ALL in os.environ:
        return list(cases)
    return [cases[number] for number in sorted(random.Random(_SEED).sample(range(len(cases)), count))]


def how_many(variable: str, *, usual: int, all_of_them: int) -> int:
    """Return how many cases to draw: the value of a variable, or else the default of this kind of run."""
    return int(os.environ.get(variable) or (all_of_them if ALL in os.environ else usual))
