"""What several tests compare with: loops over points, in float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

# Shape legend: N points, C channels, G nodes a side.
Array = NDArray[np.float64]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Draw numbers in (0, 1), float64."""
    return torch.from_numpy(np.random.default_rng(seed).random(shape))


def splat_in_a_loop(points_N3: Array, values_NC: Array, size: int) -> Array:
    """Distribute values point by point and corner by corner, (C, G, G, G)."""
    grid_CGGG = np.zeros((values_NC.shape[1], size, size, size))
    for point_3, value_C in zip(points_N3, values_NC, strict=True):
        position_3 = point_3 * size
        for node in product(*(range(int(p), int(p) + 2) for p in position_3)):
            weight = np.prod(1 - np.abs(position_3 - node))
            grid_CGGG[:, node[0] % size, node[1] % size, node[2] % size] += weight * value_C
    return grid_CGGG
