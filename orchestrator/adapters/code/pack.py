"""One compressed stream: a tar of what changed, and the manifest of the whole tree as its last member.

The manifest is what makes the stream valid: one that ends early, for whatever reason, has none.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import xxhash
import zstandard

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


def pack(tree: CodeTree, entries: Sequence[Entry], *, zstd: bool, progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the stream that brings these entries; progress is called with the bytes of content packed so far.

    Raises:
        TreeChangedError: the stream is invalid, and must not be finished.
    """
    compressor: _Compressor = (
        zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
        if zstd
        else zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    )
    for part in _gathered(_tar(tree, entries, progress)):
        if compressed := compressor.compress(part):
            yield compressed
    yield compressor.flush()


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _tar(tree: CodeTree, entries: Sequence[Entry], progress: Callable[[int], None]) -> Iterator[bytes]:
    packed = 0
    for entry in entries:
        if entry.type == LINK:
            yield _header(entry, 0)
            continue
        yield from _file(entry, tree.sources[entry.path])
        packed += entry.size
        progress(packed)
    manifest = tree.manifest.encode()
    yield _header(Entry(MANIFEST_NAME, FILE, 0o644, len(manifest), "", ""), 0)
    yield manifest
    yield _padding(len(manifest)) + bytes(2 * _BLOCK)


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
