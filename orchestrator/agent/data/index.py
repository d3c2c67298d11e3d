"""Parses a data set's index, which lists each file's pieces. The laptop writes it (adapters/sync/data/index.py)."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ..base.errors import AgentError
from ..base.files import join_bounded
from ..base.tree_rule import find_fault

INDEX = "index.json.gz"
SHARDS = "shards/"
OWN = ".kedge"
"""kedge's own folder inside a data set."""
_FORMAT = 1
_LIMIT = 1 << 62
_DAMAGED = (
    *(OSError, EOFError, zlib.error, ValueError, KeyError, TypeError),
    *(AttributeError, RecursionError, OverflowError),
)
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile("[0-9a-f]{64}")


class Piece(NamedTuple):
    """A range of a file's bytes, and its place in a shard."""

    shard: str
    offset: int
    bytes: int
    sha256: str


class DataFile(NamedTuple):
    """A file and its pieces in order; an empty file has none."""

    path: str
    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """The file's size."""
        return sum(piece.bytes for piece in self.pieces)


class DataIndex(NamedTuple):
    """A whole data set; `is_file` if it is a single file."""

    is_file: bool = False
    files: tuple[DataFile, ...] = ()
    links: Mapping[str, str] = {}
    folders: tuple[str, ...] = ()

    @property
    def paths(self) -> set[str]:
        """All paths in it."""
        return {*(file.path for file in self.files), *self.links, *self.folders}


def parse_index(raw: bytes) -> DataIndex:
    """Parse an index, and check that no path in it leaves the data set, because it comes from outside.

    Raises:
        AgentError: it isn't a valid index.
    """
    try:
        return _parse(json.loads(_unpacked(raw)))
    except _DAMAGED as err:
        raise AgentError(
            "the data set's index can't be read", why=str(err), fix="bring kedge up to date, and sync the data again"
        ) from err


def _parse(found: Mapping[str, Any]) -> DataIndex:
    if found["format"] != _FORMAT:
        raise ValueError(f"its format is {found['format']!r}")
    index = DataIndex(
        is_file=found["is_file"] is True,
        files=tuple(_parse_file(file) for file in found["files"]),
        links=dict(found["links"]),
        folders=tuple(found["folders"]),
    )
    if index.is_file and len(index.paths) != len(index.files[:1]):
        raise ValueError("a single file is one file")
    no_folders = {*index.links, *(file.path for file in index.files)}
    if fault := find_fault(index.paths, index.links, no_folders):
        raise ValueError(f"it isn't a valid tree: {fault}")
    if own := next((path for path in index.paths if path.partition("/")[0] == OWN), ""):
        raise ValueError(f"{own!r} is reserved for kedge")
    return index


def _unpacked(raw: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        return join_bounded(iter(partial(stream.read, _CHUNK_BYTES), b""), "an index, unpacked,")


def _parse_file(raw: Mapping[str, Any]) -> DataFile:
    pieces = tuple(_parse_piece(piece) for piece in raw["pieces"])
    file = DataFile(str(raw["path"]), int(raw["mode"]) & 0o777, int(raw["mtime_ns"]), pieces)
    if abs(file.mtime_ns) >= _LIMIT or file.bytes >= _LIMIT:
        raise ValueError(f"{file.path!r} has an invalid size or time")
    return file


def _parse_piece(raw: Mapping[str, Any]) -> Piece:
    piece = Piece(str(raw["shard"]), int(raw["offset"]), int(raw["bytes"]), str(raw["sha256"]))
    if not _SHA256.fullmatch(piece.shard) or piece.offset < 0 or piece.bytes <= 0:
        raise ValueError(f"{raw} is not a valid piece")
    return piece
