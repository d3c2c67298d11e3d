"""The data of fresnel: X.jpg, and for each features/X_dinov2.bin (float32 [37, 37, D]) and X_depth.bin (256 x 256)."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from trainer.api import BadRequestError
from trainer.base.errors import first_line
from trainer.data.files.pictures import DAMAGED
from trainer.recipes.gaussian.decoder import GRID
from trainer.recipes.gaussian.settings import DataSettings

# Shape legend: D features, G patches along a side, H height, W width.
SUFFIXES = {"small": "_dinov2.bin", "base": "_dinov2_base.bin", "large": "_dinov2_large.bin"}
DEPTH_SUFFIX = "_depth.bin"
DEPTH_SIDE = 256
PICTURES = (".jpg", ".jpeg", ".png")
_BYTES = 4
_MAKE = "make them: python -m trainer preprocess gaussian --data FOLDER --weights dinov2_vits14_pretrain.pth"


class Scene(NamedTuple):
    """One picture, (3, H, W) in [0, 1]; its features, (D, G, G); its depth, (1, 256, 256) in [0, 1]."""

    image: torch.Tensor
    features: torch.Tensor
    depth: torch.Tensor


class SceneFolder:
    """The pictures of a folder by name. The samples are `Scene`s of the size that is asked for."""

    def __init__(self, settings: DataSettings, *, pixels: int) -> None:
        """List the files and check their sizes; nothing is read.

        Raises:
            BadRequestError: there are no pictures, files are missing or have the wrong size, or it isn't clear whose
                features to read.
        """
        self.pixels = pixels
        self.pictures = list_pictures(settings.folder)[: settings.max_images or None]
        self._features = [path.parent / "features" / path.stem for path in self.pictures]
        self._suffix = SUFFIXES[_choose_kind(settings.features, self._features)]
        self.width = self._read_width()
        for stem in self._features:
            _check_size(stem, DEPTH_SUFFIX, DEPTH_SIDE * DEPTH_SIDE)

    def __len__(self) -> int:
        """Count the pictures."""
        return len(self.pictures)

    def sample(self, index: int, rng: np.random.Generator) -> Scene:  # noqa: ARG002 - nothing is random
        """Read one scene."""
        stem = self._features[index]
        features_GGD = _read(stem, self._suffix, (GRID, GRID, self.width))
        return Scene(
            image=torch.from_numpy(read_picture(self.pictures[index], self.pixels)),
            features=torch.from_numpy(features_GGD).permute(2, 0, 1).contiguous(),
            depth=torch.from_numpy(_read(stem, DEPTH_SUFFIX, (1, DEPTH_SIDE, DEPTH_SIDE))),
        )

    def _read_width(self) -> int:
        """Return D, which all files of features have to share."""
        first = self._features[0].with_name(self._features[0].name + self._suffix)
        patch_bytes = _BYTES * GRID * GRID
        width, rest = divmod(first.stat().st_size, patch_bytes)
        if rest or not width:
            raise BadRequestError(
                f"{first} has no features of {GRID} x {GRID} patches",
                why=f"its {first.stat().st_size:,} bytes are no multiple of {patch_bytes:,}",
                fix=_MAKE,
            )
        for stem in self._features:
            _check_size(stem, self._suffix, GRID * GRID * width)
        return width


def read_picture(path: Path, pixels: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    """Read a picture as (3, H, W) in [0, 1], resized to a square.

    Raises:
        BadRequestError: it can't be decoded.
    """
    picture = open_picture(path).resize((pixels, pixels), Image.Resampling.LANCZOS)
    return np.ascontiguousarray(np.asarray(picture, dtype=np.float32).transpose(2, 0, 1) / 255)


def open_picture(path: Path) -> Image.Image:
    """Decode a picture.

    Raises:
        BadRequestError: it can't be decoded.
    """
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as file:
            return file.convert("RGB")
    except DAMAGED as err:
        raise BadRequestError(
            f"{path} is no picture that can be read",
            why=first_line(err),
            fix="copy it again, or replace it; python -m trainer check gaussian --data FOLDER lists all cut ones",
        ) from err


def list_pictures(folder: Path | str) -> list[Path]:
    """List the pictures of a folder by name.

    Raises:
        BadRequestError: there are none; the empty text names no folder.
    """
    files = list(Path(folder).glob("*")) if folder and Path(folder).is_dir() else []
    pictures = sorted(path for path in files if path.suffix.lower() in PICTURES)
    if not pictures:
        raise BadRequestError(
            f"there are no pictures {Path(folder, 'X.jpg')}",
            why="the recipe reads the pictures of a folder, and what was computed of each in features/",
            fix="set data.folder, or make small data to try: python -m trainer generate gaussian FOLDER",
        )
    return pictures


def _choose_kind(kind: str, stems: list[Path]) -> str:
    """Return whose features to read: those asked for, else the only ones; the first picture has to have them."""
    wanted = tuple(SUFFIXES) if kind == "auto" else (kind,)
    found = [name for name in wanted if stems[0].with_name(stems[0].name + SUFFIXES[name]).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequestError(
            f"{stems[0].parent} has features of DINOv2 {' and '.join(found)}",
            why="a run is trained on one kind",
            fix=f"choose one: --set data.features={found[-1]}",
        )
    missing = f"{stems[0]}{SUFFIXES['small' if kind == 'auto' else kind]}"
    raise BadRequestError(f"there is no file {missing}", why="each picture needs its features", fix=_MAKE)


def _check_size(stem: Path, suffix: str, values: int) -> None:
    path = stem.with_name(stem.name + suffix)
    size = path.stat().st_size if path.is_file() else None
    if size != _BYTES * values:
        raise BadRequestError(
            f"{path} is missing" if size is None else f"{path} has {size:,} bytes instead of {_BYTES * values:,}",
            why="each picture needs features of the same width, and a depth of 256 x 256 values of four bytes",
            fix="python -m trainer check gaussian --data FOLDER lists all such files",
        )


def _read(stem: Path, suffix: str, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Read little-endian float32 values; the size was checked, but the file may have changed since."""
    path = stem.with_name(stem.name + suffix)
    count = int(np.prod(shape))
    values = np.fromfile(path, dtype="<f4", count=count)
    if len(values) != count:
        _check_size(stem, suffix, count)
    if not np.isfinite(values).all():
        raise BadRequestError(
            f"{path} has values that are no numbers",
            why="NaN or infinity: a batch with them teaches nothing",
            fix=f"delete it, and make it again: {_MAKE.removeprefix('make them: ')}",
        )
    return values.astype(np.float32, copy=False).reshape(shape)
