"""Which files the bucket has already, and where their contents lie."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator.adapters.datasets.index import FileEntry, Index
from orchestrator.adapters.datasets.scan import Found, LocalFile, Signature
from orchestrator.core.tree import upper_folders

Run = Callable[[Callable[[LocalFile], None], Sequence[LocalFile]], None]

_CHUNK = 1 << 20
# A shard of which less than this is still in use is given up, and what is in use is packed anew.
_WORTH_KEEPING = 0.5


def find_unchanged(
    files: Iterable[LocalFile], base: Index, signatures: Mapping[str, Signature], run: Run
) -> dict[str, FileEntry]:
    """Return the entries, with today's modes and times, of files whose content is in the bucket.

    Args:
        files: what is here.
        base: what the bucket has.
        signatures: of the files when they were put there; where one isn't the same the content is read.
        run: does something for files, several at once.
    """
    likely = [file for file in files if file.path in base.files and base.files[file.path].bytes == file.bytes]
    same = {file.path for file in likely if signatures.get(file.path) == file.signature}

    def look(file: LocalFile) -> None:
        if _has_content(file, base.files[file.path]):
            same.add(file.path)

    run(look, [file for file in likely if file.path not in same])
    unchanged = {
        file.path: base.files[file.path]._replace(mode=file.mode, mtime_ns=file.mtime_ns)
        for file in likely
        if file.path in same
    }
    return _without_wasteful(unchanged, base)


def extras(found: Found, base: Index) -> set[str]:
    """List what the bucket has, and the folder hasn't: but for what can't lie beside what is in the folder now."""
    here = {*found.files, *found.links}
    above = {parent for path in (*here, *found.folders) for parent in upper_folders(path)}
    ours = here | found.folders | above
    return {path for path in base.paths - ours if here.isdisjoint(upper_folders(path))}


def _has_content(file: LocalFile, entry: FileEntry) -> bool:
    try:
        with Path(file.source).open("rb") as content:
            return all(_digest(content.read, piece.bytes) == piece.sha256 for piece in entry.pieces)
    except OSError:
        # Whoever sends it meets the same, and says so.
        return False


def _digest(read: Callable[[int], bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size and (chunk := read(min(size, _CHUNK))):
        size -= len(chunk)
        digest.update(chunk)
    return digest.hexdigest()


def _without_wasteful(entries: dict[str, FileEntry], base: Index) -> dict[str, FileEntry]:
    used: Counter[str] = Counter()
    for entry in entries.values():
        for piece in entry.pieces:
            used[piece.shard] += piece.bytes
    wasteful = {shard for shard, size in used.items() if size < base.shards.get(shard, 0) * _WORTH_KEEPING}
    return {path: entry for path, entry in entries.items() if wasteful.isdisjoint(p.shard for p in entry.pieces)}
