"""How files are packed into shards: a plan, made by stat alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orchestrator.adapters.datasets.scan import LocalFile

SHARD_BYTES = 64 << 20
"""1 GB in 2,000 files goes up in 0.7 s so packed, against 1.9 s to 9.7 s file by file (measured 2026-11)."""
_LARGE = 8
"""A file of at least this part of a shard has shards of its own."""


class Extent(NamedTuple):
    """A run of a local file's bytes."""

    file: LocalFile
    start: int
    bytes: int


Shard = tuple[Extent, ...]


def plan_shards(files: Iterable[LocalFile], shard_bytes: int = SHARD_BYTES) -> Iterator[Shard]:
    """Pack files, in the order of their paths, into as few shards as will do; empty files need none.

    Large files have shards of their own: small ones that come and go before them don't move their contents.
    """
    waiting: list[Extent] = []
    size = 0
    for file in sorted(files):
        if file.bytes >= shard_bytes // _LARGE:
            yield from _cut(file, shard_bytes)
        elif file.bytes:
            if size + file.bytes > shard_bytes:
                yield tuple(waiting)
                waiting, size = [], 0
            waiting.append(Extent(file, 0, file.bytes))
            size += file.bytes
    if waiting:
        yield tuple(waiting)


def _cut(file: LocalFile, shard_bytes: int) -> Iterator[Shard]:
    for start in range(0, file.bytes, shard_bytes):
        yield (Extent(file, start, min(shard_bytes, file.bytes - start)),)
