"""Headers of TIFF files: pages, sizes, and whether all strips are in the file. No pixel is decoded.

TIFF 6.0 (Adobe, 1992), section 2, and BigTIFF.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MOST_PAGES = 8192
_MOST_TAGS = 512
_MOST_STRIPS = 65_536
# Bytes and struct's letter by type; other types are of no tag that is read here.
_TYPES = {1: (1, "B"), 3: (2, "H"), 4: (4, "I"), 16: (8, "Q")}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES = 256, 257, 258, 259, 277
_OFFSETS, _COUNTS = (273, 324), (279, 325)
_ONES = {_BITS: 1, _COMPRESSION: 1, _SAMPLES: 1}
"""Tags that may be missing, and their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffPage:
    """One page's size, and up to which byte of the file its strips or tiles reach."""

    width: int
    height: int
    bits: int
    samples: int
    compression: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffHeader:
    """All pages of a file, and its size in bytes."""

    pages: tuple[TiffPage, ...]
    bytes: int

    @property
    def end(self) -> int:
        """Return the last byte that a page needs."""
        return max(page.end for page in self.pages)


def read_tiff_header(path: Path) -> TiffHeader:
    """Read the pages of a TIFF file.

    Raises:
        ValueError: it is none, or truncated within its directories.
        OSError: it can't be read.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        reader = _Reader(stream)
        pages = tuple(_read_pages(reader))
    if not pages:
        raise ValueError("it has no page")
    return TiffHeader(pages=pages, bytes=size)


class _Reader:
    """Reads numbers in the file's byte order; `is_big` for BigTIFF."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        head = stream.read(16)
        self._order = {b"II": "<", b"MM": ">"}.get(head[:2], "")
        version = struct.unpack(f"{self._order}H", head[2:4])[0] if self._order and len(head) >= 8 else 0
        if version not in (42, 43) or (version == 43 and len(head) < 16):
            raise ValueError("it doesn't begin as a TIFF file does")
        self.is_big = version == 43
        (self.first,) = struct.unpack_from(f"{self._order}{'8xQ' if self.is_big else '4xI'}", head)

    def numbers(self, offset: int, letter: str, count: int) -> tuple[int, ...]:
        """Read numbers at an offset."""
        return struct.unpack(f"{self._order}{count}{letter}", self._bytes(offset, count * struct.calcsize(letter)))

    def inline(self, value: bytes, letter: str, count: int) -> tuple[int, ...]:
        """Read the numbers that lie in a directory entry itself."""
        return struct.unpack_from(f"{self._order}{count}{letter}", value)

    def entry(self, offset: int) -> tuple[int, int, int, bytes]:
        """Read one entry of a directory: tag, type, count, and its value or the offset of that."""
        size, form = (20, "HHQ8s") if self.is_big else (12, "HHI4s")
        return struct.unpack(f"{self._order}{form}", self._bytes(offset, size))

    def _bytes(self, offset: int, count: int) -> bytes:
        self._stream.seek(offset)
        found = self._stream.read(count)
        if len(found) < count:
            raise ValueError(f"it ends within a directory, at byte {offset + len(found):,}")
        return found


def _read_pages(reader: _Reader) -> Iterator[TiffPage]:
    offset, seen = reader.first, set[int]()
    while offset:
        if offset in seen or len(seen) == _MOST_PAGES:
            raise ValueError("its pages have no end")
        seen.add(offset)
        tags, offset = _read_directory(reader, offset)
        yield _make_page(tags)


def _read_directory(reader: _Reader, offset: int) -> tuple[dict[int, tuple[int, ...]], int]:
    """Return the tags that matter here, and the offset of the next directory."""
    head, letter, entry = (8, "Q", 20) if reader.is_big else (2, "H", 12)
    (count,) = reader.numbers(offset, letter, 1)
    if count > _MOST_TAGS:
        raise ValueError(f"a page has {count:,} tags")
    tags: dict[int, tuple[int, ...]] = {}
    for number in range(count):
        tag, kind, length, value = reader.entry(offset + head + number * entry)
        if tag in {_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, *_OFFSETS, *_COUNTS} and kind in _TYPES:
            tags[tag] = _read_value(reader, kind, length, value)
    (following,) = reader.numbers(offset + head + count * entry, "Q" if reader.is_big else "I", 1)
    return tags, following


def _read_value(reader: _Reader, kind: int, length: int, value: bytes) -> tuple[int, ...]:
    size, letter = _TYPES[kind]
    if length > _MOST_STRIPS:
        raise ValueError(f"a page has {length:,} strips")
    if size * length <= len(value):
        return reader.inline(value, letter, length)
    (at,) = reader.inline(value, "Q" if reader.is_big else "I", 1)
    return reader.numbers(at, letter, length)


def _make_page(tags: dict[int, tuple[int, ...]]) -> TiffPage:
    def one(tag: int) -> int:
        values = tags.get(tag, (_ONES[tag],) if tag in _ONES else ())
        if not values:
            raise ValueError(f"a page lacks tag {tag}")
        return values[0]

    offsets, counts = (_first_of(tags, names) for names in (_OFFSETS, _COUNTS))
    if not offsets or len(offsets) != len(counts):
        raise ValueError("a page doesn't say where its strips are")
    return TiffPage(
        width=one(_WIDTH),
        height=one(_HEIGHT),
        bits=one(_BITS),
        samples=one(_SAMPLES),
        compression=one(_COMPRESSION),
        end=max(start + count for start, count in zip(offsets, counts, strict=True)),
    )


def _first_of(tags: dict[int, tuple[int, ...]], names: Sequence[int]) -> tuple[int, ...]:
    return next((tags[name] for name in names if name in tags), ())
