"""Finds files that are in the bucket already, so that they aren't sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator.adapters.host.hashing import sha256_of
from orchestrator.adapters.sync.data.index import FileEntry, Index
from orchestrator.adapters.sync.snapshot import LocalFile, Signature, Snapshot
from orchestrator.core.protocol.tree import upper_folders

Run = Callable[[Callable[[LocalFile], None], Sequence[LocalFile]], None]

# If less than this part of a shard is still in use, the shard is dropped, and its used content is packed again.
_WORTH_KEEPING = 0.5


def find_unchanged(
    files: Iterable[LocalFile], base: Index, signatures: Mapping[str, Signature], run: Run
) -> dict[str, FileEntry]:
    """Return the entries of files whose content is in the bucket, with their current modes and times.

    Args:
        files: the files on the laptop.
        base: the bucket's index.
        signatures: the files' signatures when they were sent; if one has changed, the content is compared.
        run: calls a function for files, in parallel.
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


def extras(found: Snapshot, base: Index) -> set[str]:
    """List paths that only the bucket has, without those that would collide with the folder's current paths."""
    here = {*found.files, *found.links}
    above = {parent for path in (*here, *found.folders) for parent in upper_folders(path)}
    ours = here | found.folders | above
    return {path for path in base.paths - ours if here.isdisjoint(upper_folders(path))}


def _has_content(file: LocalFile, entry: FileEntry) -> bool:
    try:
        with Path(file.source).open("rb") as content:
            return all(sha256_of(content, piece.bytes) == piece.sha256 for piece in entry.pieces)
    except OSError:
        # Sending it will fail too, and report the error.
        return False


def _without_wasteful(entries: dict[str, FileEntry], base: Index) -> dict[str, FileEntry]:
    used: Counter[str] = Counter()
    for entry in entries.values():
        for piece in entry.pieces:
            used[piece.shard] += piece.bytes
    wasteful = {shard for shard, size in used.items() if size < base.shards.get(shard, 0) * _WORTH_KEEPING}
    return {path: entry for path, entry in entries.items() if wasteful.isdisjoint(p.shard for p in entry.pieces)}
