"""The index of a data set: what each file is made of. The laptop writes it in adapters/datasets/index.py."""

from __future__ import annotations

import gzip
import json
import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import AgentError

INDEX = "index.json.gz"
SHARDS = "shards/"
OWN = ".kedge"
"""The folder inside a data set that is kedge's own."""
_FORMAT = 1
_SHA256 = re.compile("[0-9a-f]{64}")


class Piece(NamedTuple):
    """A run of a file's bytes, and where in a shard it lies."""

    shard: str
    offset: int
    bytes: int
    sha256: str


class DataFile(NamedTuple):
    """A file: its pieces one after the other, none for an empty one."""

    path: str
    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(piece.bytes for piece in self.pieces)


class DataIndex(NamedTuple):
    """A whole data set; a single file where `is_file`."""

    is_file: bool = False
    files: tuple[DataFile, ...] = ()
    links: Mapping[str, str] = {}
    folders: tuple[str, ...] = ()

    @property
    def paths(self) -> set[str]:
        """Everything that it holds."""
        return {*(file.path for file in self.files), *self.links, *self.folders}


def parse_index(raw: bytes) -> DataIndex:
    """Read an index. It comes from outside: no path in it leaves the data set.

    Raises:
        AgentError: it is none, or holds what none may hold.
    """
    try:
        return _parse(json.loads(gzip.decompress(raw)))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise AgentError(
            "the data set's index can't be read", why=str(err), fix="bring kedge up to date, and sync the data again"
        ) from err


def _parse(found: Mapping[str, Any]) -> DataIndex:
    if found["format"] != _FORMAT:
        raise ValueError(f"its format is {found['format']!r}")
    return DataIndex(
        is_file=bool(found["is_file"]),
        files=tuple(_parse_file(file) for file in found["files"]),
        links={_checked(path): _checked_link(path, target) for path, target in found["links"].items()},
        folders=tuple(_checked(path) for path in found["folders"]),
    )


def _parse_file(raw: Mapping[str, Any]) -> DataFile:
    pieces = tuple(_parse_piece(piece) for piece in raw["pieces"])
    return DataFile(_checked(raw["path"]), int(raw["mode"]) & 0o777, int(raw["mtime_ns"]), pieces)


def _parse_piece(raw: Mapping[str, Any]) -> Piece:
    piece = Piece(str(raw["shard"]), int(raw["offset"]), int(raw["bytes"]), str(raw["sha256"]))
    if not _SHA256.fullmatch(piece.shard) or piece.offset < 0 or piece.bytes <= 0:
        raise ValueError(f"{raw} is no piece of a shard")
    return piece


def _checked(path: str) -> str:
    parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or "\0" in path or parts[0] == OWN:
        raise ValueError(f"{path!r} is no path of a data set")
    return path


def _checked_link(path: str, target: str) -> str:
    written = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if not target or posixpath.isabs(target) or written == ".." or written.startswith("../") or "\0" in target:
        raise ValueError(f"the link {path!r} leaves the data set")
    return target
