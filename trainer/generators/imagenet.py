"""Drawn shapes in ImageNet's layout of folders: six classes that differ in form and pattern, not in colour."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Shape legend: H height, W width, C colours.
COUNT = 600
_VALIDATION_SHARE = 4
Mask = NDArray[np.bool_]
Draw = Callable[[NDArray[np.float64], NDArray[np.float64], float], Mask]


def generate(folder: Path, *, count: int | None = None, seed: int = 0) -> None:
    """Write `count` pictures below train/, and a quarter as many below val/.

    The classes' folders are called like ImageNet's, by WordNet ids, but there are no such ids.
    """
    training = COUNT if count is None else count
    numbers = {"train": max(training, len(CLASSES)), "val": max(training // _VALIDATION_SHARE, len(CLASSES))}
    rng = np.random.default_rng(seed)
    for split, pictures in numbers.items():
        for number in range(pictures):
            name = list(CLASSES)[number % len(CLASSES)]
            path = folder / split / name / (f"{name}_{number}.JPEG" if split == "train" else f"val_{number:08}.JPEG")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw_picture(CLASSES[name], rng)).save(path, quality=90)


def draw_picture(draw: Draw, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw one shape, (H, W, 3): its place, size and both colours are random, with noise over all."""
    height, width = rng.integers(48, 81, 2)
    radius = min(height, width) * rng.uniform(0.3, 0.48)
    middle_y, middle_x = rng.uniform(radius, height - radius), rng.uniform(radius, width - radius)
    y_HW, x_HW = np.mgrid[:height, :width].astype(np.float64)
    mask_HW = draw((x_HW - middle_x) / radius, (y_HW - middle_y) / radius, rng.uniform(0.4, 0.55))
    dark_C, bright_C = rng.uniform(0, 110, 3), rng.uniform(145, 255, 3)
    background_C, shape_C = (dark_C, bright_C) if rng.random() < 0.5 else (bright_C, dark_C)
    picture_HWC = np.where(mask_HW[..., None], shape_C, background_C) + rng.normal(0, 12, (height, width, 3))
    return picture_HWC.clip(0, 255).astype(np.uint8)


def pack_shards(folder: Path, target: Path, *, per_shard: int) -> None:
    """Write the pictures of a generated folder as tar shards: KEY.jpg, and KEY.cls with the class's number."""
    target.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        paths = sorted((folder / split).glob("*/*"), key=lambda path: path.stem)
        numbers = {name: number for number, name in enumerate(sorted({path.parent.name for path in paths}))}
        for shard, begin in enumerate(range(0, len(paths), per_shard)):
            with tarfile.open(target / f"imagenet-{split}-{shard:06}.tar", "w") as tar:
                for path in paths[begin : begin + per_shard]:
                    _add(tar, f"{path.stem}.jpg", path.read_bytes())
                    _add(tar, f"{path.stem}.cls", str(numbers[path.parent.name]).encode())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _disc(x: NDArray[np.float64], y: NDArray[np.float64], _period: float) -> Mask:
    return x**2 + y**2 < 1


def _rings(x: NDArray[np.float64], y: NDArray[np.float64], period: float) -> Mask:
    radius = np.hypot(x, y)
    return (radius < 1) & (radius % period < period / 2)


def _bars_across(x: NDArray[np.float64], y: NDArray[np.float64], period: float) -> Mask:
    return _square(x, y) & (y % period < period / 2)


def _bars_upright(x: NDArray[np.float64], y: NDArray[np.float64], period: float) -> Mask:
    return _square(x, y) & (x % period < period / 2)


def _checks(x: NDArray[np.float64], y: NDArray[np.float64], period: float) -> Mask:
    return _square(x, y) & ((x % period < period / 2) ^ (y % period < period / 2))


def _cross(x: NDArray[np.float64], y: NDArray[np.float64], period: float) -> Mask:
    return _square(x, y) & ((np.abs(x) < period / 2) | (np.abs(y) < period / 2))


def _square(x: NDArray[np.float64], y: NDArray[np.float64]) -> Mask:
    return (np.abs(x) < 1) & (np.abs(y) < 1)


CLASSES: dict[str, Draw] = {
    f"n{number:08}": draw
    for number, draw in enumerate((_disc, _rings, _bars_across, _bars_upright, _checks, _cross), 90000000)
}
"""What is drawn of each class, by its name: x and y are between -1 and 1, the third argument is a pattern's period."""
