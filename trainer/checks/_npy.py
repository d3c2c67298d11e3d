"""Reads the header of a .npy file: its dtype, shape and size, without NumPy.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (2026-11).
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass
from typing import IO

_MAGIC = b"\x93NUMPY"
_LARGEST = 10_000
"""NumPy itself reads no larger header."""
_DTYPE = re.compile(r"[<>|=]?([biufc])(\d{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class NpyHeader:
    """What a file says of its array: `kind` is b, i, u, f or c, `item_bytes` the size of an element.

    `dtype` is both with the order of bytes, as NumPy writes it: `<f4`.
    """

    kind: str
    item_bytes: int
    shape: tuple[int, ...]
    begin: int
    """Bytes before the array."""
    dtype: str
    is_fortran: bool
    """The first axis varies fastest."""

    @property
    def file_bytes(self) -> int:
        """The size that the file must have."""
        return self.begin + self.item_bytes * math.prod(self.shape)


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header at the beginning of a file.

    Raises:
        ValueError: it is no .npy file, or its array has no plain numbers.
    """
    start = stream.read(12)
    if len(start) < 10 or start[:6] != _MAGIC:
        raise ValueError("it doesn't begin like an .npy file")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if length > _LARGEST:
        raise ValueError(f"its header has {length:,} bytes")
    text = (start[8 + width :] + stream.read(max(0, length - (len(start) - 8 - width))))[:length]
    fields = _parse(text)
    dtype, shape = _DTYPE.fullmatch(str(fields.get("descr"))), fields.get("shape")
    if dtype is None:
        raise ValueError(f"its elements are {str(fields.get('descr'))[:40]!r}, not numbers")
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("its header has no shape")
    return NpyHeader(
        kind=dtype[1],
        item_bytes=int(dtype[2]),
        shape=shape,
        begin=8 + width + length,
        dtype=dtype[0],
        is_fortran=fields.get("fortran_order") is True,
    )


def _parse(text: bytes) -> dict[object, object]:
    try:
        return dict(ast.literal_eval(text.decode("latin-1").strip()))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as err:
        raise ValueError("its header can't be read") from err
