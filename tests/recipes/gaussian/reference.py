"""The renderer once more, in float64 NumPy: a loop over Gaussians, derivatives by differences, matrices by scipy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]


class Cloud(NamedTuple):
    """Gaussians of one picture: positions (N, 3), scales (N, 3), quaternions w, x, y, z (N, 4), colours, opacities."""

    positions: Array
    scales: Array
    rotations: Array
    colours: Array
    opacities: Array


def see(point: Array, pixels: int) -> Array:
    """Project a point: x to the right and y downwards, in pixels; the camera looks along -z."""
    x, y, z = point
    return np.array([0.8 * pixels * x / -z + pixels / 2, -0.8 * pixels * y / -z + pixels / 2])


def see_shape(position: Array, scales: Array, quaternion: Array, pixels: int) -> Array:
    """Return the projected covariance, (2, 2), by central differences of `see`."""
    axes = Rotation.from_quat(quaternion, scalar_first=True).as_matrix() @ np.diag(scales)
    step = 1e-5
    slopes = [(see(position + d, pixels) - see(position - d, pixels)) / (2 * step) for d in step * np.eye(3)]
    across = np.stack(slopes, 1) @ axes
    shape: Array = across @ across.T
    return shape


def render(cloud: Cloud, pixels: int) -> tuple[Array, Array]:
    """Return the picture, (3, H, W), and the depth, (H, W), one Gaussian after another."""
    image, depth, light = np.zeros((3, pixels, pixels)), np.zeros((pixels, pixels)), np.ones((pixels, pixels))
    distances = -cloud.positions[:, 2]
    for n in np.argsort(distances, kind="stable"):
        if not 0.01 < distances[n] < 100:
            continue
        centre = see(cloud.positions[n], pixels)
        shape = see_shape(cloud.positions[n], cloud.scales[n], cloud.rotations[n], pixels)
        radius = min(64.0, 3 * np.sqrt(max(1e-6, np.linalg.eigvalsh(shape)[-1])))
        inverse = np.linalg.inv(shape + 1e-4 * np.eye(2))
        first, last = np.floor(centre - radius), np.floor(centre + radius)
        for row in range(max(0, int(first[1])), min(pixels - 1, int(last[1])) + 1):
            for column in range(max(0, int(first[0])), min(pixels - 1, int(last[0])) + 1):
                d = np.array([column, row]) - centre
                alpha = min(0.99, cloud.opacities[n] * np.exp(-0.5 * d @ inverse @ d))
                share = light[row, column] * alpha
                image[:, row, column] += share * cloud.colours[n]
                depth[row, column] += share * distances[n]
                light[row, column] *= 1 - alpha
    return image, depth


def draw_cloud(rng: np.random.Generator, count: int, *, largest: float = 0.3) -> Cloud:
    """Draw Gaussians in front of the camera, some of them beside the picture, some at the same depth."""
    positions = np.concatenate([rng.uniform(-2, 2, (count, 2)), -rng.choice([1.5, 2, 2.5, 3, 4], (count, 1))], 1)
    return Cloud(
        positions=positions,
        scales=rng.uniform(0.01, largest, (count, 3)),
        rotations=rng.normal(size=(count, 4)),
        colours=rng.uniform(size=(count, 3)),
        opacities=rng.uniform(0.05, 1, count),
    )
