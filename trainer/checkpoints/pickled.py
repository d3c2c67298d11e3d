"""Reads files of torch.save without running code in them; refuses anything but plain containers and tensors.

NumPy's arrays and numbers are left out: trainers save NumPy's random state beside the weights.
"""

import io
import mmap
import pickletools
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, cast

import torch
from torch.serialization import safe_globals

from trainer.base.errors import clip, first_line

# What torch.load raises on invalid bytes.
_LOAD_ERRORS = (
    EOFError,
    RuntimeError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
    AssertionError,
    # The file may claim a size that doesn't fit into memory, and hold only a few bytes.
    MemoryError,
    OverflowError,
    UnpicklingError,
    struct.error,
    zlib.error,
)
# The modules of the functions that rebuild torch.save's containers and tensors.
_HARMLESS = ("torch.", "collections.OrderedDict")
# What pickles of NumPy's arrays and numbers name, in NumPy 1 and 2.
_OF_NUMPY = (
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
    *("numpy.ndarray", "numpy.dtype", "_codecs.encode", "__builtin__.bytes", "builtins.bytes"),
)
_SAFE_SINCE = (2, 6)
"""The first torch with a safe `weights_only`. Source: CVE-2025-32434 (GHSA-53q9-r3pm-6pq6): up to 2.5.1 a file could
run code in spite of it."""
# Before torch.save wrote zip files, it wrote five pickles in a row: magic number, version, system, content, keys.
_PICKLES_IN_A_ROW = 5
_LONGEST_NAME = 255


class LeftOut:
    """Stands for something of NumPy in a file: nothing of it is read, and no code of NumPy is called."""

    def __init__(self, *_: object) -> None:
        """Take no notice of what it would be made of."""

    def __setstate__(self, _: object) -> None:
        """Take no notice of its state."""


class UnsafeFileError(ValueError):
    """Reading the file would call code that it names."""


def read_pickled(path: Path) -> Any:
    """Read a file of torch.save onto the CPU, its zip's checksums verified.

    Raises:
        OSError: it cannot be read.
        UnsafeFileError: reading it would run code, which the message names; or this torch couldn't prevent that.
        ValueError: it is truncated, corrupt, or not a file of torch.save.
    """
    _require_safe_torch(str(torch.__version__))
    try:
        if zipfile.is_zipfile(path):
            _check_zip(path)
        _require_short_names(path)
        with warnings.catch_warnings(), safe_globals([(LeftOut, name) for name in _OF_NUMPY]):
            warnings.simplefilter("ignore")  # the warning about another pickle protocol
            return torch.load(path, map_location="cpu", weights_only=True)
    except zipfile.BadZipFile as err:
        raise ValueError(first_line(err)) from err
    except _LOAD_ERRORS as err:
        refused = list_calls(path)
        if refused:
            raise UnsafeFileError(f"loading it would call {clip(', '.join(refused))}") from err
        raise ValueError(_explain(err)) from err


def list_calls(path: Path) -> list[str]:
    """List the globals that unpickling a file would import, except torch's and NumPy's, without importing them."""
    names: set[str] = set()
    with suppress(*_LOAD_ERRORS, ValueError, OSError, zipfile.BadZipFile):
        names.update(_names(path))
    return sorted(name for name in names if not name.startswith(_HARMLESS) and name not in _OF_NUMPY)


def _names(path: Path) -> Iterator[str]:
    with _open_pickle(path) as stream:
        for _ in range(_PICKLES_IN_A_ROW):
            if not stream.read(1):
                return
            stream.seek(-1, io.SEEK_CUR)
            yield from _globals(stream)


def _require_short_names(path: Path) -> None:
    """Refuse very long names, on which torch's error message takes minutes (torch 2.13.0, `_get_wo_message`)."""
    if any(len(name) > _LONGEST_NAME for name in _names(path)):
        raise UnsafeFileError(f"it names code in more than {_LONGEST_NAME} characters")


def _require_safe_torch(version: str) -> None:
    """Refuse to read with an older torch, because its `weights_only` is not safe."""
    numbers = [int(number) for number in version.split(".")[:2] if number.isdigit()]
    if tuple(numbers) < _SAFE_SINCE:
        raise UnsafeFileError(f"with torch {version} it could run code, which 2.6 and newer prevent")


def _check_zip(path: Path) -> None:
    """Verify the checksums that torch.save writes, which torch.load doesn't."""
    with zipfile.ZipFile(path) as archive:
        altered = archive.testzip()
    if altered:
        raise zipfile.BadZipFile(f"{altered} fails its checksum")


def _open_pickle(path: Path) -> BinaryIO:
    if not zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            # A pickle may claim a string of an exabyte, for which a file object would allocate; a mapping doesn't.
            return cast("BinaryIO", mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    with zipfile.ZipFile(path) as archive:
        member = next((name for name in archive.namelist() if name.endswith("data.pkl")), None)
        return io.BytesIO(archive.read(member) if member else b"")


def _globals(stream: BinaryIO) -> Iterator[str]:
    """Yield the module.name of every global of the next pickle."""
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "GLOBAL":
            yield str(argument).replace(" ", ".")
        elif opcode.name == "STACK_GLOBAL":
            yield ".".join(strings[-2:])
        elif isinstance(argument, str):
            strings.append(argument)


def _explain(err: BaseException) -> str:
    """Return the part of torch's message that says what is wrong; most of it is advice to trust the file."""
    lines = str(err).splitlines()
    start = next((number for number, line in enumerate(lines) if "WeightsUnpickler error" in line), None)
    return first_line(err) if start is None else clip(" ".join(" ".join(lines[start : start + 3]).split()))
