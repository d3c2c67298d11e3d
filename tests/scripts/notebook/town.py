"""A town with five quarters."""

import math
import random

_dice = random.Random(5)
_QUARTERS = [(0.2, 0.2), (0.8, 0.25), (0.5, 0.5), (0.15, 0.8), (0.85, 0.85)]
customers = [(_dice.gauss(x, 0.06), _dice.gauss(y, 0.06)) for x, y in _QUARTERS for _ in range(80)]


def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return math.dist(one, other)
