"""Samples: patches of volumes, 70% of them centred on a surface, with flips, rotations and other intensities.

The numbers are those of the original project (bshepp/volumen, src_v2/dataset.py, read in November 2026).
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from skimage.morphology import ball, skeletonize

from trainer.api import BadRequestError
from trainer.recipes.surface.volumes import SURFACE, LabelledVolume, VolumeStore

# Shape legend: P patches' side, Z Y X axes of a patch.
T = TypeVar("T", bound=np.generic)
_CSV_LIMIT = 16 << 20
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VALIDATION_STREAM = 5


class Patch(NamedTuple):
    """A sample, or a batch of them: then each tensor has the samples first.

    Args:
        raw: (1, P, P, P), float32, the volume's values over 255.
        labels: (P, P, P), uint8.
        skeleton: (P, P, P), bool, within the surface.
        is_scored: whether the competition's score is measured on it, in validation.
    """

    raw: torch.Tensor
    labels: torch.Tensor
    skeleton: torch.Tensor
    is_scored: torch.Tensor


def split_by_scroll(folder: Path, held_out: str) -> tuple[list[str], list[str]]:
    """Read train.csv, and return the ids for training, and those of the held-out scroll.

    Volumes that the competition has withdrawn (deprecated_train_images) are in neither.

    Raises:
        BadRequestError: train.csv is missing or none, or one side would be empty.
    """
    path = folder / "train.csv"
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream.read(_CSV_LIMIT).splitlines()))
        pairs = [(_ID.fullmatch(row["id"].strip())[0], row["scroll_id"].strip()) for row in rows]  # type: ignore[index]
    except (OSError, UnicodeDecodeError, KeyError, AttributeError, TypeError, csv.Error) as err:
        raise BadRequestError(
            f"{path} can't be read as the list of volumes",
            why=str(err) if isinstance(err, OSError) else "it has to have the columns id and scroll_id, filled in",
            fix="name the folder of the competition's data with --set data.folder=FOLDER",
        ) from err
    withdrawn = folder / "deprecated_train_images"
    pairs = [pair for pair in pairs if not (withdrawn / f"{pair[0]}.tif").exists()]
    training = [name for name, scroll in pairs if scroll != held_out]
    validation = [name for name, scroll in pairs if scroll == held_out]
    if not training or not validation:
        raise BadRequestError(
            f"scroll {held_out} can't be held out",
            why=f"{path} has {len(validation)} volumes of it, and {len(training)} of others",
            fix=f"--set data.held_out=ID with one of {', '.join(sorted({scroll for _, scroll in pairs})[:10])}",
        )
    return training, validation


class PatchSource:
    """Patches of volumes: sample i is of volume i // per_volume.

    Args:
        names: ids of the volumes.
        store: opens them.
        side: of a patch.
        per_volume: patches of each volume in an epoch.
        centred: share of the patches that are centred on a voxel of the surface.
        dilation: of the skeleton, voxels.
        augments: flip, rotate and change intensities; otherwise each patch is always the same one.
        scored: how many patches are marked for the score, spread evenly.
    """

    def __init__(
        self,
        names: Sequence[str],
        store: VolumeStore,
        *,
        side: int,
        per_volume: int,
        centred: float,
        dilation: int,
        augments: bool,
        scored: int = 0,
    ) -> None:
        self._names = list(names)
        self._store = store
        self._side = side
        self._per_volume = per_volume
        self._centred = centred
        self._dilation = dilation
        self._augments = augments
        count = len(self)
        self._scored = {index * count // min(scored, count) for index in range(min(scored, count))}

    def __len__(self) -> int:
        """Count the patches of an epoch."""
        return len(self._names) * self._per_volume

    def order(self, _epoch: int, rng: np.random.Generator, _batch_size: int) -> NDArray[np.int64]:
        """Return the volumes in random order, the patches of each together: so each is decoded once an epoch."""
        volumes = rng.permutation(len(self._names))
        return (volumes[:, None] * self._per_volume + np.arange(self._per_volume)).reshape(-1)

    def sample(self, index: int, rng: np.random.Generator) -> Patch:
        """Cut a patch out of its volume.

        Raises:
            BadRequestError: the volume can't be read, or is smaller than a patch.
        """
        name = self._names[index // self._per_volume]
        volume = self._store.open(name)
        if min(volume.image.shape) < self._side:
            raise BadRequestError(
                f"volume {name} is smaller than a patch",
                why=f"it has {volume.image.shape} voxels, a patch {self._side}^3",
                fix=f"--set data.patch={min(volume.image.shape)}, or less",
            )
        rng = rng if self._augments else np.random.default_rng((_VALIDATION_STREAM, index))
        place = choose_place(volume, self._side, self._centred, rng)
        raw_ZYX = np.divide(volume.image[place], 255, dtype=np.float32)
        labels_ZYX = np.ascontiguousarray(volume.labels[place])
        skeleton_ZYX = tube_skeleton(labels_ZYX == SURFACE, self._dilation)
        if self._augments:
            raw_ZYX, labels_ZYX, skeleton_ZYX = augment(raw_ZYX, labels_ZYX, skeleton_ZYX, rng)
        return Patch(
            raw=torch.from_numpy(np.ascontiguousarray(raw_ZYX))[None],
            labels=torch.from_numpy(np.ascontiguousarray(labels_ZYX)),
            skeleton=torch.from_numpy(np.ascontiguousarray(skeleton_ZYX)),
            is_scored=torch.tensor(index in self._scored),
        )


def choose_place(
    volume: LabelledVolume, side: int, centred: float, rng: np.random.Generator
) -> tuple[slice, slice, slice]:
    """Choose where a patch is: around a voxel of the surface with probability `centred`, else anywhere.

    At the volume's borders the patch is moved inwards. A volume without surface has patches anywhere.
    """
    shape_ZYX = np.array(volume.labels.shape)
    highest_ZYX = shape_ZYX - side
    if rng.random() < centred and len(volume.surface):
        position = volume.surface[rng.integers(len(volume.surface))]
        middle_ZYX = np.array(np.unravel_index(position, volume.labels.shape))
        first_ZYX = np.clip(middle_ZYX - side // 2, 0, highest_ZYX)
    else:
        first_ZYX = rng.integers(highest_ZYX, endpoint=True)
    z, y, x = (slice(int(first), int(first) + side) for first in first_ZYX)
    return z, y, x


def tube_skeleton(surface_ZYX: NDArray[np.bool_], dilation: int) -> NDArray[np.bool_]:
    """Skeletonise a surface (Lee et al. 1994), dilate it by a ball, and keep what lies within the surface.

    Kirchhoff et al. 2024 (arXiv:2404.03010), section 3.1.
    """
    if not surface_ZYX.any():
        return np.zeros_like(surface_ZYX)
    skeleton_ZYX: NDArray[np.bool_] = skeletonize(surface_ZYX)  # type: ignore[no-untyped-call]
    if dilation:
        skeleton_ZYX = ndimage.binary_dilation(skeleton_ZYX, ball(dilation))  # type: ignore[no-untyped-call]
    return skeleton_ZYX & surface_ZYX


def augment(
    raw_ZYX: NDArray[np.float32],
    labels_ZYX: NDArray[np.uint8],
    skeleton_ZYX: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.bool_]]:
    """Flip each axis with probability 1/2, rotate by 90 degrees in YX, and in ZY with probability .3.

    Half of the patches get another intensity: x .9 to 1.1, and -.05 to .05 more.
    """
    flipped = tuple(axis for axis in range(3) if rng.random() < 0.5)
    turns_yx = int(rng.integers(4))
    turns_zy = int(rng.choice([1, 3])) if rng.random() < 0.3 else 0

    def turn(volume_ZYX: NDArray[T]) -> NDArray[T]:
        return np.rot90(np.rot90(np.flip(volume_ZYX, flipped), turns_yx, (1, 2)), turns_zy, (0, 1))

    raw_ZYX = turn(raw_ZYX)
    if rng.random() < 0.5:
        raw_ZYX = raw_ZYX * np.float32(rng.uniform(0.9, 1.1)) + np.float32(rng.uniform(-0.05, 0.05))
    return raw_ZYX, turn(labels_ZYX), turn(skeleton_ZYX)
