"""The index of a data set: what both sides know it by. The agent reads the same names in agent/datasets.py."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.core.decoding import clip
from orchestrator.core.errors import KedgeError

INDEX = "index.json.gz"
SHARDS = "shards/"
INDEX_BYTES = 256 << 20
"""Of an index, unpacked: the agent reads no larger one."""
_FORMAT = 1
_LEVEL = 4


class Piece(NamedTuple):
    """A run of a file's bytes, and where in a shard it lies."""

    shard: str
    offset: int
    bytes: int
    sha256: str


class FileEntry(NamedTuple):
    """A file: its pieces one after the other, none for an empty one.

    Attributes:
        mode: the permission bits.
    """

    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A whole data set.

    Attributes:
        is_file: it is a single file, the only one in `files`, rather than a folder.
        files: by path, relative and with slashes; bytes that are no UTF-8 are lone surrogates.
        links: path -> where it points, relative and inside the data set.
        folders: those that hold nothing.
        shards: name -> bytes, of every shard that a piece lies in.
    """

    is_file: bool = False
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    shards: Mapping[str, int] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """Everything that it holds."""
        return {*self.files, *self.links, *self.folders}

    def encode(self) -> bytes:
        """Write the object that the machine reads: the same index has the same bytes."""
        files = [
            {"path": path, "mode": file.mode, "mtime_ns": file.mtime_ns, "pieces": [p._asdict() for p in file.pieces]}
            for path, file in sorted(self.files.items())
        ]
        content = {
            "format": _FORMAT,
            "is_file": self.is_file,
            "files": files,
            "links": dict(sorted(self.links.items())),
            "folders": sorted(self.folders),
            "shards": dict(sorted(self.shards.items())),
        }
        return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), _LEVEL, mtime=0)


def decode_index(raw: bytes) -> Index:
    """Read what `encode` wrote. It comes from a bucket that a machine may be able to write to.

    Raises:
        KedgeError: it is something else.
    """
    try:
        return _parse(json.loads(_unpacked(raw)))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as err:
        raise KedgeError(
            "the data set's index in the bucket can't be read",
            why=clip(str(err)),
            fix=f"update kedge, or remove that {INDEX} and run the command again: contents aren't sent twice",
        ) from err


def _unpacked(raw: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        content = stream.read(INDEX_BYTES + 1)
    if len(content) > INDEX_BYTES:
        raise ValueError(f"it is larger than {INDEX_BYTES >> 20} MiB")
    return content


def _parse(found: Mapping[str, Any]) -> Index:
    if found["format"] != _FORMAT:
        raise ValueError(f"its format is {found['format']!r}")
    shards = {str(name): int(size) for name, size in found["shards"].items()}
    return Index(
        is_file=bool(found["is_file"]),
        files={str(file["path"]): _parse_file(file, shards) for file in found["files"]},
        links={str(path): str(target) for path, target in found["links"].items()},
        folders=frozenset(str(path) for path in found["folders"]),
        shards=shards,
    )


def _parse_file(raw: Mapping[str, Any], shards: Mapping[str, int]) -> FileEntry:
    pieces = tuple(_parse_piece(piece, shards) for piece in raw["pieces"])
    return FileEntry(mode=int(raw["mode"]) & 0o777, mtime_ns=int(raw["mtime_ns"]), pieces=pieces)


def _parse_piece(raw: Mapping[str, Any], shards: Mapping[str, int]) -> Piece:
    piece = Piece(str(raw["shard"]), int(raw["offset"]), int(raw["bytes"]), str(raw["sha256"]))
    if piece.shard not in shards or piece.offset < 0 or piece.bytes <= 0:
        raise ValueError(f"{raw} is no piece of a shard")
    return piece
