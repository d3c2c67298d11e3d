"""Volumes from multi-page TIFF files: read once, and kept as memory maps where there is a cache folder."""

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trainer.api import BadRequestError
from trainer.base.errors import first_line
from trainer.data.files.kept import open_kept
from trainer.data.files.pictures import DAMAGED

# Shape legend: Z Y X axes of a volume, N surface voxels.
Volume = NDArray[np.uint8]
SURFACE = 1
LARGEST_LABEL = 2
LARGEST_SIDE = 2048
LARGEST_VOXELS = 1 << 30
"""A volume of the competition has 320^3, which is 33 MB; a file that claims more than 1 GiB isn't decoded."""
_KEPT = 2
"""Decoded volumes that stay in memory: a batch has patches of one, and may end with the next one's."""


def read_volume(path: Path) -> Volume:
    """Decode a multi-page TIFF file of 8-bit grey pages (Z, Y, X); LZW and deflate too.

    Sizes are checked before a page is decoded.

    Raises:
        BadRequestError: it is no such file, or truncated.
    """
    try:
        with warnings.catch_warnings(), Image.open(path, formats=["TIFF"]) as file:
            # Of a directory that is cut off Pillow only warns, and then has fewer pages.
            warnings.filterwarnings("error", message="(Possibly )?[Cc]orrupt EXIF|Truncated File")
            pages: int = getattr(file, "n_frames", 1)
            size_YX = (file.height, file.width)
            _check_size(path, (pages, *size_YX))
            volume_ZYX = np.empty((pages, *size_YX), np.uint8)
            for page in range(pages):
                file.seek(page)
                if file.mode != "L" or (file.height, file.width) != size_YX:
                    found = f"page {page + 1} is {file.height} x {file.width}, mode {file.mode}"
                    raise _refuse(path, f"{found}; page 1 is {size_YX[0]} x {size_YX[1]}")
                volume_ZYX[page] = np.asarray(file)
    except (*DAMAGED, UserWarning) as err:
        raise _refuse(path, first_line(err)) from err
    return volume_ZYX


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledVolume:
    """A volume and its labels, each (Z, Y, X), and where its surface is, (N,): positions in the flat volume."""

    image: Volume
    labels: Volume
    surface: NDArray[np.int64]


class VolumeStore:
    """Opens labelled volumes by id; the last few stay in memory.

    Args:
        folder: has train_images/ID.tif and train_labels/ID.tif.
        cache: where decoded volumes are kept as .npy, 64 MB for each id of 320^3; None: they are decoded each time.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        self._cache = cache
        self._recent: OrderedDict[str, LabelledVolume] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is in memory: a loader process opens its own."""
        return {**self.__dict__, "_recent": OrderedDict()}

    def open(self, name: str) -> LabelledVolume:
        """Return one labelled volume.

        Raises:
            BadRequestError: a file is missing or damaged, image and labels differ in shape, or there are other labels
                than 0, 1 and 2.
        """
        if name not in self._recent:
            self._recent[name] = self._load(name)
            while len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(name)
        return self._recent[name]

    def _load(self, name: str) -> LabelledVolume:
        image_ZYX, labels_ZYX = (self._open(kind, name) for kind in ("train_images", "train_labels"))
        if image_ZYX.shape != labels_ZYX.shape:
            path = self._folder / "train_labels" / f"{name}.tif"
            raise _refuse(path, f"it has {labels_ZYX.shape} voxels, its image {image_ZYX.shape}")
        if labels_ZYX.max() > LARGEST_LABEL:
            raise _refuse_labels(self._folder / "train_labels" / f"{name}.tif", labels_ZYX)
        surface_N = np.flatnonzero(labels_ZYX == SURFACE)
        return LabelledVolume(image=image_ZYX, labels=labels_ZYX, surface=surface_N)

    def _open(self, kind: str, name: str) -> Volume:
        source = self._folder / kind / f"{name}.tif"
        return read_volume(source) if self._cache is None else open_kept(source, self._cache / kind, read_volume)


def _check_size(path: Path, shape_ZYX: tuple[int, int, int]) -> None:
    if not all(0 < side <= LARGEST_SIDE for side in shape_ZYX) or np.prod(shape_ZYX, dtype=np.int64) > LARGEST_VOXELS:
        raise _refuse(path, f"{' x '.join(map(str, shape_ZYX))} voxels are too many")


def _refuse_labels(path: Path, labels_ZYX: Volume) -> BadRequestError:
    first = np.unravel_index(int(np.argmax(labels_ZYX > LARGEST_LABEL)), labels_ZYX.shape)
    return BadRequestError(
        f"{path} has the label {labels_ZYX[first]}",
        why=f"voxel {tuple(map(int, first))} (Z, Y, X) has it; labels are 0 background, 1 surface, 2 unlabelled",
        fix="write the file again with these labels, or leave its row out of train.csv",
    )


def _refuse(path: Path, why: str) -> BadRequestError:
    return BadRequestError(
        f"{path} can't be used as a volume",
        why=why,
        fix="python -m trainer check surface --data FOLDER lists all files like it; fetch them again",
    )
