"""The index of a data set, as the laptop writes it and the agent reads it (agent/data/mirror.py)."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.decoding import Name, Size, clip
from orchestrator.core.protocol.tree import is_tree_path
from orchestrator.core.values.structs import convert

INDEX = "index.json.gz"
SHARDS = "shards/"
INDEX_BYTES = 1 << 28
"""The largest index, packed or unpacked; machines have the same limit (agent/base/files.py)."""
_FORMAT = 1
_LEVEL = 4
_Mode = Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
_Nanoseconds = Annotated[int, msgspec.Meta(gt=-(1 << 62), lt=1 << 62)]


class Piece(NamedTuple):
    """A range of a file's bytes, and its place in a shard."""

    shard: str
    offset: int
    bytes: int
    sha256: str


class FileEntry(NamedTuple):
    """A file and its pieces in order; an empty file has none.

    Attributes:
        mode: the permission bits.
    """

    mode: int
    mtime_ns: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """The file's size."""
        return sum(piece.bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A whole data set.

    Attributes:
        is_file: the data set is a single file, the only one in `files`, rather than a folder.
        files: path -> entry; paths are relative, with slashes; bytes that aren't UTF-8 are lone surrogates.
        links: path -> target, relative and inside the data set.
        folders: empty folders.
        shards: name -> bytes, of every shard with a piece.
    """

    is_file: bool = False
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    shards: Mapping[str, int] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """The paths of all files, links and empty folders."""
        return {*self.files, *self.links, *self.folders}

    def encode(self) -> bytes:
        """Return the object that the machine reads; the same index always gives the same bytes."""
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
    """Read what `encode` wrote; it is validated, because others may write to the bucket.

    Raises:
        KedgeError: it isn't a valid index.
    """
    try:
        return _parse(convert(json.loads(_unpacked(raw)), _Written))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error, msgspec.ValidationError) as err:
        raise KedgeError(
            "the data set's index in the bucket can't be read",
            why=clip(str(err)),
            fix=f"update kedge, or remove that {INDEX} and run the command again: contents aren't sent twice",
        ) from err


class _WrittenPiece(msgspec.Struct):
    shard: Name
    offset: Size
    bytes: Size
    sha256: Name


class _WrittenFile(msgspec.Struct):
    path: str
    mode: _Mode
    mtime_ns: _Nanoseconds
    pieces: tuple[_WrittenPiece, ...]


class _Written(msgspec.Struct):
    """An index's JSON: all fields are required, unknown ones are ignored."""

    format: int
    is_file: bool
    files: tuple[_WrittenFile, ...]
    links: dict[str, str]
    folders: tuple[str, ...]
    shards: dict[str, Size]


def _unpacked(raw: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        content = stream.read(INDEX_BYTES + 1)
    if len(content) > INDEX_BYTES or len(raw) > INDEX_BYTES:
        raise ValueError(f"it is larger than {INDEX_BYTES >> 20} MiB")
    return content


def _parse(found: _Written) -> Index:
    if found.format != _FORMAT:
        raise ValueError(f"its format is {found.format}")
    files = {file.path: _parse_file(file, found.shards) for file in found.files}
    index = Index(
        is_file=found.is_file, files=files, links=found.links, folders=frozenset(found.folders), shards=found.shards
    )
    if odd := [path for path in index.paths if not is_tree_path(path)]:
        raise ValueError(f"{clip(odd[0])!r} is not a valid path in it")
    return index


def _parse_file(written: _WrittenFile, shards: Mapping[str, int]) -> FileEntry:
    pieces = tuple(Piece(each.shard, each.offset, each.bytes, each.sha256) for each in written.pieces)
    if lost := [piece for piece in pieces if piece.shard not in shards or not piece.bytes]:
        raise ValueError(f"{lost[0]} is not a piece of a shard that it lists")
    return FileEntry(mode=written.mode, mtime_ns=written.mtime_ns, pieces=pieces)
