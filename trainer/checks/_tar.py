"""The members of a tar file, by its headers alone: names, places and sizes (POSIX.1-1988 ustar, GNU, pax)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_BLOCK = 512
_MOST_NAME = 64 * 1024
_FILES, _LONG_NAME, _PAX = (b"0", b"\0"), b"L", b"x"


class DamagedTarError(Exception):
    """The file isn't a whole tar file; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TarMember:
    """A plain file in a tar file: its bytes are from `begin` on."""

    name: str
    begin: int
    size: int


def list_members(stream: BinaryIO) -> Iterator[TarMember]:
    """Yield the plain files, in order.

    Raises:
        DamagedTarError: a header or the end is missing or damaged; what came before is fine.
        OSError: the file can't be read.
    """
    total, position, long_name = os.fstat(stream.fileno()).st_size, 0, ""
    while True:
        stream.seek(position)
        header = stream.read(_BLOCK)
        if len(header) == _BLOCK and not any(header):
            return
        size = _read_size(header, position, total)
        begin, kind = position + _BLOCK, header[156:157]
        if begin + size > total:
            raise DamagedTarError(f"{_name_of(header)} ends after {total - begin:,} of its {size:,} bytes")
        if kind in (_LONG_NAME, _PAX):
            long_name = _read_name(stream.read(min(size, _MOST_NAME)), kind) or long_name
        else:
            if kind in _FILES:
                yield TarMember(name=long_name or _name_of(header), begin=begin, size=size)
            long_name = ""
        position = begin + -(-size // _BLOCK) * _BLOCK


def _read_size(header: bytes, position: int, total: int) -> int:
    """Return a member's size, after a look at the header's checksum."""
    if len(header) < _BLOCK:
        raise DamagedTarError(f"its end is missing after {total:,} bytes")
    try:
        stated = _read_octal(header[148:156])
        big = header[124] & 0x80
        size = int.from_bytes(header[125:136]) if big else _read_octal(header[124:136])
    except ValueError:
        stated, size = -1, 0
    if stated != sum(header[:148]) + 8 * ord(" ") + sum(header[156:]):
        raise DamagedTarError(f"there is no header of a tar file at byte {position:,}")
    return size


def _read_octal(field: bytes) -> int:
    """Read an octal number; raises ValueError for what `int` also takes: signs and underscores."""
    digits = field.split(b"\0")[0].strip() or b"0"
    if not digits.isdigit():
        raise ValueError(digits)
    return int(digits, 8)


def _name_of(header: bytes) -> str:
    name, prefix = (part.split(b"\0")[0].decode(errors="replace") for part in (header[:100], header[345:500]))
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _read_name(data: bytes, kind: bytes) -> str:
    if kind == _LONG_NAME:
        return data.split(b"\0")[0].decode(errors="replace")
    for record in data.split(b"\n"):  # "LENGTH KEY=VALUE"
        key, _, value = record.partition(b" ")[2].partition(b"=")
        if key == b"path":
            return value.decode(errors="replace")
    return ""
