"""Arrays that are decoded once, and kept in a folder from which later epochs and other processes map them."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.base.errors import BadRequestError, first_line

# Shape legend: D H W axes of an array.
Array = NDArray[np.uint8]


def open_kept(source: Path, folder: Path, decode: Callable[[Path], Array]) -> Array:
    """Return what `decode` makes of a file, as a memory map, (D, H, W); it is called once for each content of the file.

    Several processes may do so at once. A file of another size or time of change is decoded anew.

    Raises:
        BadRequestError: what is kept has another form; `decode` may raise its own.
    """
    try:
        stat = source.stat()
    except OSError:
        return decode(source)  # which says what is wrong
    kept = folder / f"{source.stem}-{stat.st_size}-{stat.st_mtime_ns}.npy"
    if not kept.exists():
        _keep(kept, decode(source))
    return _map(kept)


def _keep(path: Path, array_DHW: Array) -> None:
    """Write an array under its name when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as stream:
            np.save(stream, array_DHW)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _map(path: Path) -> Array:
    try:
        array_DHW = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as err:
        raise _refuse(path, first_line(err)) from err
    if array_DHW.ndim != 3 or array_DHW.dtype != np.uint8:
        raise _refuse(path, f"it holds {array_DHW.dtype} with {array_DHW.ndim} dimensions, not bytes with 3")
    return array_DHW  # type: ignore[no-any-return]  # seen above


def _refuse(path: Path, why: str) -> BadRequestError:
    return BadRequestError(f"{path} can't be used", why=why, fix="delete it; it is made again from the data")
