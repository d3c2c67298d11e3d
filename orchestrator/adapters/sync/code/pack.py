"""Packs code into one compressed stream: a tar of the changed files, with the whole tree's manifest as its last member.

Only the manifest makes the stream valid, so a truncated stream is never valid.
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

from orchestrator.adapters.sync.code.entries import FILE, LINK, MANIFEST_NAME, CodeEntry
from orchestrator.adapters.sync.code.read_ahead import StreamPart
from orchestrator.adapters.sync.code.tree import CodeTree, TreeChangedError

_CHUNK = 1 << 18
_BLOCK = 512
_GZIP_LEVEL = 4
# Fast enough for a connection of 250 Mbit/s, with 8 % fewer bytes than level 3.
_ZSTD_LEVEL = 5
_GZIP_WINDOW = 31
_NAME_LIMIT = 100
_NUMBER_LIMIT = 8**11
_ROOT = b"0000000\0" * 2
_PLAIN_FILE = b"0" + bytes(100) + b"ustar\x0000"


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


def pack(tree: CodeTree, entries: Sequence[CodeEntry], *, zstd: bool) -> Iterator[StreamPart]:
    """Yield a stream with these entries.

    Raises:
        TreeChangedError: a file changed, so the stream is invalid and must not be finished.
    """
    compressor = _compressor(zstd=zstd)
    reached = 0
    for part in _gathered(_tar(tree, entries)):
        reached = part.reached
        if compressed := compressor.compress(part.data):
            yield StreamPart(compressed, reached)
    yield StreamPart(compressor.flush(), reached)


def pack_unchanged(content_hash: str, *, zstd: bool) -> StreamPart:
    """Return a stream without files, which says that the machine's tree has this hash and stays."""
    manifest = json.dumps({"hash": content_hash}).encode()
    header = _header(CodeEntry(MANIFEST_NAME, FILE, 0o644, len(manifest), "", ""), 0)
    return StreamPart(_compressed(header + manifest + _padding(len(manifest)) + bytes(2 * _BLOCK), zstd=zstd), 0)


def _compressed(data: bytes, *, zstd: bool) -> bytes:
    compressor = _compressor(zstd=zstd)
    return compressor.compress(data) + compressor.flush()


def _compressor(*, zstd: bool) -> _Compressor:
    if zstd:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()
    return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)


def _gathered(parts: Iterable[StreamPart]) -> Iterator[StreamPart]:
    waiting: list[bytes] = []
    size = reached = 0
    for part in parts:
        waiting.append(part.data)
        size, reached = size + len(part.data), part.reached
        if size >= _CHUNK:
            yield StreamPart(b"".join(waiting), reached)
            waiting, size = [], 0
    yield StreamPart(b"".join(waiting), reached)


def _tar(tree: CodeTree, entries: Sequence[CodeEntry]) -> Iterator[StreamPart]:
    reached = 0
    for entry in entries:
        content = [_header(entry, 0)] if entry.type == LINK else _file(entry, tree.sources[entry.path])
        yield from (StreamPart(data, reached) for data in content)
        reached += entry.size
    manifest = tree.manifest.encode()
    yield StreamPart(_header(CodeEntry(MANIFEST_NAME, FILE, 0o644, len(manifest), "", ""), 0), reached)
    yield StreamPart(manifest + _padding(len(manifest)) + bytes(2 * _BLOCK), reached)


def _file(entry: CodeEntry, source: str) -> Iterator[bytes]:
    # System calls instead of a file object, because a command runs this thousands of times.
    try:
        file = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as err:
        raise TreeChangedError(entry.path) from err
    try:
        yield _header(entry, int(os.fstat(file).st_mtime))
        whole = xxhash.xxh3_128()
        for chunk in _read(file, entry):
            whole.update(chunk)
            yield chunk
    finally:
        os.close(file)
    if whole.hexdigest() != entry.digest:
        raise TreeChangedError(entry.path)
    yield _padding(entry.size)


def _read(file: int, entry: CodeEntry) -> Iterator[bytes]:
    left = entry.size
    try:
        # Reads one byte more than its size, to notice if it has grown.
        while chunk := os.read(file, min(left + 1, _CHUNK)):
            left -= len(chunk)
            if left < 0:
                break
            yield chunk
    except OSError as err:
        raise TreeChangedError(entry.path) from err
    if left:
        raise TreeChangedError(entry.path)


def _header(entry: CodeEntry, mtime: int) -> bytes:
    name = os.fsencode(entry.path)
    plain_name = name.isascii() and len(name) <= _NAME_LIMIT
    if entry.type == FILE and plain_name and entry.size < _NUMBER_LIMIT and 0 <= mtime < _NUMBER_LIMIT:
        return _plain_header(name, entry, mtime)
    info = tarfile.TarInfo(entry.path)
    info.mode, info.size, info.mtime = entry.mode, entry.size, mtime
    if entry.type == LINK:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _plain_header(name: bytes, entry: CodeEntry, mtime: int) -> bytes:
    """Return the same header as tarfile for a file without extensions, in a fifth of the time.

    Source: POSIX.1-2017, pax, "ustar Interchange Format".
    """
    before = b"%b%07o\0%b%011o\0%011o\0" % (name.ljust(_NAME_LIMIT, b"\0"), entry.mode, _ROOT, entry.size, mtime)
    after = _PLAIN_FILE.ljust(_BLOCK - len(before) - 8, b"\0")
    # The checksum counts its own field as spaces.
    return b"%b%06o\0 %b" % (before, sum(before) + sum(after) + 8 * 0x20, after)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)
