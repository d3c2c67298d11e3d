"""What a recipe makes to look at: files in OUTPUT/samples/epoch-000123 or step-00001234.

They are pictures, volumes, point clouds, or anything else.

The recipe returns values by file name, and the suffix chooses the form:

    NAME.png         a picture, (H, W) or (H, W, 3): 8 bits, or floats in [0, 1]
    NAME.npz         a volume, (D, H, W), or any other array; its name in the file is `data`
    NAME.ply         a point cloud, (N, 3)
    NAME.npy         any array
    any other name   bytes, or text

A folder appears under its name when all of its files are written.
"""

import io
import re
import shutil
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.base.config import SampleSettings
from trainer.base.errors import BadRequestError, TrainerError, first_line

# Shape legend: D depth, H height, W width, N points.
FOLDER = "samples"
_SET = re.compile(r"(epoch|step)-(\d{6,})")
_LEFTOVER = re.compile(r"\.(?:epoch|step)-\d+\.(?:new|old)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,118}[A-Za-z0-9_-]|[A-Za-z0-9_]")
_RGB = 3
Array = NDArray[Any]


class SampleFolder:
    """OUTPUT/samples. Only the main process writes it."""

    def __init__(self, path: Path, settings: SampleSettings, *, steps_per_epoch: int) -> None:
        self.path = path
        self._settings = settings
        self._steps_per_epoch = steps_per_epoch

    def write(self, samples: Mapping[str, Any], *, step: int, epoch: int | None = None) -> Path:
        """Write one set of samples, then remove the surplus ones. Return its folder.

        Args:
            samples: what the recipe returned.
            step: the number of steps that were made before.
            epoch: the epoch at whose end they were made, counted from 1; None: they are named by their step.

        Raises:
            BadRequestError: a name or a value can't be written as a file.
            TrainerError: the disk refuses.
        """
        contents = {check_name(name): encode_sample(name, value) for name, value in samples.items()}
        folder = self.path / (f"step-{step:08d}" if epoch is None else f"epoch-{epoch:06d}")
        try:
            self._replace(folder, contents)
            self._prune()
        except OSError as err:
            raise TrainerError(
                f"the samples {folder.name} could not be written",
                why=first_line(err),
                fix="make room where the results are, or choose another folder with --output-dir",
            ) from err
        return folder

    def _replace(self, folder: Path, contents: Mapping[str, bytes]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for leftover in [path for path in self.path.iterdir() if _LEFTOVER.fullmatch(path.name)]:
            shutil.rmtree(leftover)
        new, old = self.path / f".{folder.name}.new", self.path / f".{folder.name}.old"
        new.mkdir()
        for name, content in contents.items():
            (new / name).write_bytes(content)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        if old.exists():
            shutil.rmtree(old)

    def _prune(self) -> None:
        """Keep the newest sets and the milestones."""
        found = [(path, match) for path in self.path.iterdir() if (match := _SET.fullmatch(path.name))]
        steps = {path: int(match[2]) * (self._steps_per_epoch if match[1] == "epoch" else 1) for path, match in found}
        for path in sorted(steps, key=lambda path: steps[path], reverse=True)[self._settings.keep :]:
            if not self._is_milestone(steps[path]):
                shutil.rmtree(path)

    def _is_milestone(self, step: int) -> bool:
        periods = (self._settings.keep_every_steps, self._settings.keep_every_epochs * self._steps_per_epoch)
        return any(period and step % period == 0 for period in periods)


def check_name(name: str) -> str:
    """Return a file name if it is a plain one.

    Raises:
        BadRequestError: it could leave the folder, is hidden, or has characters that some systems refuse.
    """
    if _NAME.fullmatch(str(name)):
        return name
    raise BadRequestError(
        f"the recipe's sample {name!r} has no usable file name",
        why="a name has up to 120 letters, digits, spaces and ._- and begins with a letter or a digit",
        fix="let the recipe's samples return names like generated-0.png",
    )


def encode_sample(name: str, value: Any) -> bytes:
    """Turn one value into its file's content.

    Raises:
        BadRequestError: the value doesn't have the form that the name's suffix stands for.
    """
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    array = _to_array(name, value)
    suffix = Path(name).suffix.lower()
    if suffix == ".png" and array.ndim in (2, 3) and (array.ndim == 2 or array.shape[2] == _RGB) and array.size:
        return _encode_png(array)
    if suffix == ".npz":
        return _save(np.savez_compressed, data=array)
    if suffix == ".npy":
        return _save(np.save, array)
    if suffix == ".ply" and array.ndim == 2 and array.shape[1] == 3:
        return _encode_ply(array)
    raise BadRequestError(
        f"the recipe's sample {name} can't be written",
        why=f"its shape is {array.shape}",
        fix="return (H, W) or (H, W, 3) for NAME.png, (N, 3) for NAME.ply, any array for NAME.npz, or bytes",
    )


def _to_array(name: str, value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return value
    raise BadRequestError(
        f"the recipe's sample {name} can't be written",
        why=f"it is a {type(value).__name__}",
        fix="return a tensor or an array of numbers, or bytes",
    )


def _save(function: Any, *arrays: Array, **named: Array) -> bytes:
    stream = io.BytesIO()
    function(stream, *arrays, **named)
    return stream.getvalue()


def _encode_png(picture: Array) -> bytes:
    """Encode a picture as PNG (ISO/IEC 15948): one chunk of data, rows without a filter."""
    if picture.dtype.kind in "fb":
        picture = np.round(np.clip(np.nan_to_num(picture.astype(np.float64)), 0.0, 1.0) * 255)
    pixels = np.clip(picture, 0, 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    unfiltered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    colour = 2 if pixels.ndim == _RGB else 0
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _encode_ply(points_N3: Array) -> bytes:
    """Encode points as binary PLY (Turk, The PLY Polygon File Format, 1994)."""
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points_N3)}"]
    lines += [f"property float {axis}" for axis in "xyz"]
    return "\n".join([*lines, "end_header\n"]).encode() + points_N3.astype("<f4").tobytes()
