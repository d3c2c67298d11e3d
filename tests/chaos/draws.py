"""Draws which commands are killed, and when."""

from __future__ import annotations

import random

Words = tuple[str, ...]
_SEED = 9


def draw_kills(kills: int, commands: tuple[Words, ...], *, first: float, last: float) -> list[tuple[float, Words]]:
    """Draw times between `first` and `last`, in seconds; each command comes equally often."""
    rng = random.Random(_SEED)
    return [(round(rng.uniform(first, last), 3), commands[number % len(commands)]) for number in range(kills)]
