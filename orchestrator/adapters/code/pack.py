"""One compressed stream: a tar of what changed, and the manifest of the whole tree as its last member.

The manifest is what makes the stream valid: one that ends early, for whatever reason, has none.
"""

from __future__ import annotations

import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import xxhash
import zstandard

from orchestrator.adapters.code.ahead import Part
from orchestrator.adapters.code.entries import FILE, LINK, MANIFEST_NAME, Entry
from orchestrator.adapters.code.tree import CodeTree, TreeChangedError

_CHUNK = 1 << 20
_BLOCK = 512
_GZIP_LEVEL = 4
_ZSTD_LEVEL = 3
_GZIP_WINDOW = 31


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def pack(tree: CodeTree, entries: Sequence[Entry], *, zstd: bool) -> Iterator[Part]:
    """Yield the stream that brings these entries.

    Raises:
        TreeChangedError: the stream is invalid, and must not be finished.
    """
    compressor = _compressor(zstd=zstd)
    reached = 0
    for part in _gathered(_tar(tree, entries)):
        reached = part.reached
        if compressed := compressor.compress(part.data):
            yield Part(compressed, reached)
    yield Part(compressor.flush(), reached)


def pack_unchanged(content_hash: str, *, zstd: bool) -> Part:
    """Make the stream that says: what is in place is the tree of this hash, and stays."""
    manifest = json.dumps({"hash": content_hash}).encode()
    header = _header(Entry(MANIFEST_NAME, FILE, 0o644, len(manifest), "", ""), 0)
    return Part(_compressed(header + manifest + _padding(len(manifest)) + bytes(2 * _BLOCK), zstd=zstd), 0)


def _compressed(data: bytes, *, zstd: bool) -> bytes:
    compressor = _compressor(zstd=zstd)
    return compressor.compress(data) + compressor.flush()


def _compressor(*, zstd: bool) -> _Compressor:
    if zstd:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)


def _gathered(parts: Iterable[Part]) -> Iterator[Part]:
    waiting: list[bytes] = []
    size = reached = 0
    for part in parts:
        waiting.append(part.data)
        size, reached = size + len(part.data), part.reached
        if size >= _CHUNK:
            yield Part(b"".join(waiting), reached)
            waiting, size = [], 0
    yield Part(b"".join(waiting), reached)


def _tar(tree: CodeTree, entries: Sequence[Entry]) -> Iterator[Part]:
    reached = 0
    for entry in entries:
        content = [_header(entry, 0)] if entry.type == LINK else _file(entry, tree.sources[entry.path])
        yield from (Part(data, reached) for data in content)
        reached += entry.size
    manifest = tree.manifest.encode()
    yield Part(_header(Entry(MANIFEST_NAME, FILE, 0o644, len(manifest), "", ""), 0), reached)
    yield Part(manifest + _padding(len(manifest)) + bytes(2 * _BLOCK), reached)


def _file(entry: Entry, source: str) -> Iterator[bytes]:
    try:
        with open(source, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of times in a command
            yield _header(entry, int(os.fstat(file.fileno()).st_mtime))
            left, whole = entry.size, xxhash.xxh3_128()
            while left and (chunk := file.read(min(left, _CHUNK))):
                left -= len(chunk)
                whole.update(chunk)
                yield chunk
            if left or file.read(1) or whole.hexdigest() != entry.digest:
                raise TreeChangedError(entry.path)
    except OSError as err:
        raise TreeChangedError(entry.path) from err
    yield _padding(entry.size)


def _header(entry: Entry, mtime: int) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.mode, info.size, info.mtime = entry.mode, entry.size, mtime
    if entry.type == LINK:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)
