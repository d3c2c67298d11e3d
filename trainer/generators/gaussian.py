"""Scenes of a few known Gaussians in the format of fresnel: X.jpg, features/X_dinov2.bin, features/X_depth.bin.

The features are a fixed random mixture of what a patch shows (its colour and depth) and of where it is, with noise: a
picture can be learnt from them, as from DINOv2's.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Shape legend: H height, W width, G patches along a side, D features, P properties of a patch.
COUNT = 40
_SIDE, _GRID, _FEATURES = 256, 37, 384
_PROPERTIES = 8
_MIXTURE_SEED = 20_261_202  # the mixture stands for DINOv2's weights: it is the same in every data set
Array = NDArray[np.float32]


class Blob(NamedTuple):
    """A Gaussian on the picture. Lengths are shares of its side; `depth` is 1 for the nearest possible one."""

    x: float
    y: float
    length: float
    breadth: float
    angle: float
    colour: tuple[float, float, float]
    depth: float


def generate(folder: Path, *, count: int | None, seed: int) -> None:
    """Write scenes; the same for the same seed, whatever their number."""
    (folder / "features").mkdir()
    mixture_PD = np.random.default_rng(_MIXTURE_SEED).normal(size=(_PROPERTIES, _FEATURES)).astype(np.float32)
    for number in range(COUNT if count is None else count):
        rng = np.random.default_rng((seed, number))
        image_HW3, depth_HW = paint(draw_blobs(rng))
        name = f"scene{number:04d}"
        Image.fromarray((image_HW3 * 255).round().astype(np.uint8)).save(folder / f"{name}.jpg", quality=95)
        _write(folder / "features" / f"{name}_depth.bin", depth_HW)
        features_GGD = np.tanh(_describe(image_HW3, depth_HW) @ mixture_PD)
        noise_GGD = rng.normal(scale=0.02, size=features_GGD.shape)
        _write(folder / "features" / f"{name}_dinov2.bin", features_GGD + noise_GGD)


def draw_blobs(rng: np.random.Generator) -> list[Blob]:
    """Draw the Gaussians of a scene."""
    return [
        Blob(
            x=rng.uniform(0.1, 0.9),
            y=rng.uniform(0.1, 0.9),
            length=rng.uniform(0.08, 0.2),
            breadth=rng.uniform(0.05, 0.1),
            angle=rng.uniform(0, np.pi),
            colour=tuple(rng.uniform(0.1, 1, size=3)),
            depth=rng.uniform(0.2, 1),
        )
        for _ in range(rng.integers(5, 10))
    ]


def paint(blobs: list[Blob]) -> tuple[Array, Array]:
    """Composite Gaussians over black: the picture (H, W, 3) and the depth (H, W), both in [0, 1]."""
    y_HW, x_HW = np.mgrid[:_SIDE, :_SIDE] / _SIDE
    image_HW3, depth_HW, light_HW = np.zeros((_SIDE, _SIDE, 3)), np.zeros((_SIDE, _SIDE)), np.ones((_SIDE, _SIDE))
    for blob in sorted(blobs, key=lambda each: -each.depth):
        along_HW = (x_HW - blob.x) * np.cos(blob.angle) + (y_HW - blob.y) * np.sin(blob.angle)
        across_HW = (y_HW - blob.y) * np.cos(blob.angle) - (x_HW - blob.x) * np.sin(blob.angle)
        alpha_HW = 0.95 * np.exp(-((along_HW / blob.length) ** 2 + (across_HW / blob.breadth) ** 2) / 2)
        image_HW3 += (light_HW * alpha_HW)[..., None] * blob.colour
        depth_HW += light_HW * alpha_HW * blob.depth
        light_HW *= 1 - alpha_HW
    return image_HW3.astype(np.float32), depth_HW.astype(np.float32)


def _describe(image_HW3: Array, depth_HW: Array) -> Array:
    """Return what each patch shows and where it is, (G, G, P)."""
    edges = np.linspace(0, _SIDE, _GRID + 1).round().astype(int)
    shown_HW4 = np.concatenate([image_HW3, depth_HW[..., None]], -1)
    rows_GW4 = np.add.reduceat(shown_HW4, edges[:-1], axis=0) / np.diff(edges)[:, None, None]
    shown_GG4 = np.add.reduceat(rows_GW4, edges[:-1], axis=1) / np.diff(edges)[:, None]
    y_GG, x_GG = np.mgrid[:_GRID, :_GRID] / (_GRID - 1) - 0.5
    bias_GG = np.full_like(x_GG, 0.2)
    place_GG4 = np.stack([x_GG, y_GG, x_GG * y_GG, bias_GG], -1)
    return np.concatenate([shown_GG4 - 0.3, place_GG4], -1).astype(np.float32)


def _write(path: Path, values: NDArray[np.floating]) -> None:
    values.astype("<f4").tofile(path)
