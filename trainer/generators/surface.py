"""Small CT volumes of papyrus: stacks of curved sheets among blobs of the same brightness, in noise.

The files are those of "Vesuvius Challenge - Surface Detection": train.csv (id, scroll_id), train_images/ID.tif and
train_labels/ID.tif, LZW-compressed pages of 8 bits. A volume has 48 voxels a side; most of the competition's have 320.
Labels are 0 (no surface), 1 (a sheet, 3 voxels thick) and 2 (unlabelled: the volume's border, and what lies beyond the
outermost sheets). No brightness tells a sheet from a blob or from the noise: its shape does.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Shape legend: Z Y X axes of a volume, S sheets.
SIDE = 48
HELD_OUT = "26002"
TRAINING = ("34117", "35360")
SPACING = 12.0
"""Voxels between sheets."""
_COUNT = 8
_BORDER = 2


def generate(folder: Path, *, count: int | None, seed: int) -> None:
    """Write volumes, of which each fourth one belongs to the held-out scroll."""
    count = _COUNT if count is None else max(2, count)
    rng = np.random.default_rng(seed)
    rows = []
    for kind in ("train_images", "train_labels"):
        (folder / kind).mkdir()
    for number in range(count):
        name = str(1_000_000 + 7_919 * number)
        scroll = HELD_OUT if number % 4 == 1 else TRAINING[number % 2]
        image_ZYX, labels_ZYX = make_volume(rng)
        save_volume(folder / "train_images" / f"{name}.tif", image_ZYX)
        save_volume(folder / "train_labels" / f"{name}.tif", labels_ZYX)
        rows.append((name, scroll))
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([("id", "scroll_id"), *rows])


def make_volume(rng: np.random.Generator, side: int = SIDE) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Make one volume and its labels, each (Z, Y, X): sheets across a random axis, curved along the other two."""
    height_ZYX = _height(rng, side)
    number_ZYX = np.round(height_ZYX / SPACING)
    offset_ZYX = np.abs(height_ZYX - number_ZYX * SPACING)
    bright_ZYX = np.maximum(np.clip(2.5 - offset_ZYX, 0, 1), _blobs(rng, side))
    image_ZYX = 80 + 60 * bright_ZYX + rng.normal(0, 30, (side,) * 3)
    labels_ZYX = (offset_ZYX < 1.5).astype(np.uint8)
    labels_ZYX[(number_ZYX < 1) | (number_ZYX > side / SPACING - 1)] = 2
    inner = (slice(_BORDER, -_BORDER),) * 3
    bordered_ZYX = np.full_like(labels_ZYX, 2)
    bordered_ZYX[inner] = labels_ZYX[inner]
    axes = rng.permutation(3)
    image_ZYX = image_ZYX.clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(image_ZYX.transpose(axes)), np.ascontiguousarray(bordered_ZYX.transpose(axes))


def save_volume(path: Path, volume_ZYX: NDArray[np.uint8], compression: str = "tiff_lzw") -> None:
    """Write a volume as a TIFF file with a page for each slice along Z."""
    pages = [Image.fromarray(page) for page in volume_ZYX]
    pages[0].save(path, format="TIFF", save_all=True, append_images=pages[1:], compression=compression)


def _blobs(rng: np.random.Generator, side: int) -> NDArray[np.float64]:
    """Draw balls of 3 to 6 voxels' radius, 1 inside, (Z, Y, X)."""
    axes = np.mgrid[:side, :side, :side]
    blobs_ZYX = np.zeros((side,) * 3)
    for _ in range(round((side / 12) ** 3 / 6)):
        middle = rng.uniform(0, side, 3)
        distance_ZYX = np.sqrt(sum((axis - at) ** 2 for axis, at in zip(axes, middle, strict=True)))
        blobs_ZYX = np.maximum(blobs_ZYX, np.clip(rng.uniform(3, 6) - distance_ZYX, 0, 1))
    return blobs_ZYX


def _height(rng: np.random.Generator, side: int) -> NDArray[np.float64]:
    """Draw each voxel's height above a curved floor, (Z, Y, X)."""
    z, y, x = np.mgrid[:side, :side, :side].astype(np.float64)
    bend = rng.uniform(1, 3, 2)
    length = rng.uniform(side / 8, side / 4, 2)
    phase = rng.uniform(0, 2 * np.pi, 3)
    waves = bend[0] * np.sin(y / length[0] + phase[0]) + bend[1] * np.cos(x / length[1] + phase[1])
    height_ZYX: NDArray[np.float64] = z + waves + SPACING * phase[2] / (2 * np.pi)
    return height_ZYX
