"""Decodes the files of a sample by extension. The files come from strangers: nothing is unpickled or run."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from trainer.base.errors import BadRequestError

# Shape legend: C channels, H height, W width.
Decoder = Callable[[bytes], Any]

_IMAGES = ("jpg", "jpeg", "png", "webp", "bmp", "ppm")
_PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM")  # others start programs (EPS), or are rarely tested
_PICKLED = frozenset({"pt", "pth", "pkl", "pickle", "pyd", "ckpt", "joblib"})


class UndecodableError(Exception):
    """A file isn't what its extension says."""


def choose_decoders(extensions: Iterable[str], own: Mapping[str, Decoder]) -> dict[str, Decoder]:
    """Choose a decoder for each extension: the recipe's own, else one by the part after the last dot, else the bytes.

    Raises:
        BadRequestError: it would have to unpickle a file, or it needs Pillow, which isn't installed.
    """
    return {extension: own.get(extension) or _choose(extension) for extension in extensions}


def decode_image(data: bytes) -> torch.Tensor:
    """Decode an image, to RGB (3, H, W) in uint8."""
    from PIL import Image  # noqa: PLC0415 - an optional package

    from trainer.data.files.pictures import DAMAGED  # noqa: PLC0415

    try:
        with Image.open(io.BytesIO(data), formats=_PILLOW_FORMATS) as image:
            pixels_HWC = np.array(image.convert("RGB"))
    except DAMAGED as err:
        raise UndecodableError(str(err)) from err
    return torch.from_numpy(pixels_HWC).permute(2, 0, 1).contiguous()


def decode_array(data: bytes) -> torch.Tensor:
    """Decode a NumPy array of numbers."""
    try:
        return torch.from_numpy(np.load(io.BytesIO(data), allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as err:
        raise UndecodableError(str(err)) from err


def decode_json(data: bytes) -> Any:
    """Decode JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as err:
        raise UndecodableError(str(err)) from err


def decode_text(data: bytes) -> str:
    """Decode UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise UndecodableError(str(err)) from err


def decode_class(data: bytes) -> int:
    """Decode a whole number in digits."""
    try:
        return int(data[:32])
    except ValueError as err:
        raise UndecodableError("it is not a whole number") from err


_DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(_IMAGES, decode_image),
    "npy": decode_array,
    "json": decode_json,
    **dict.fromkeys(("txt", "text"), decode_text),
    **dict.fromkeys(("cls", "cls2", "id", "index"), decode_class),
}


def _choose(extension: str) -> Decoder:
    kind = extension.rpartition(".")[2]
    if kind in _PICKLED:
        raise BadRequestError(
            f"files ending in .{extension} are not read",
            why="reading them could run code that is in them",
            fix="leave them out with `only`, convert them to .npy or .json, or give a decoder for this extension",
        )
    if kind in _IMAGES and find_spec("PIL") is None:
        raise BadRequestError(
            f"files ending in .{extension} can't be decoded",
            why="Pillow is not installed",
            fix="pip install pillow, or give a decoder for this extension",
        )
    return _DECODERS.get(kind, bytes)
