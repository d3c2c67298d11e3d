"""Caches digests of file contents; an entry is valid while the file's stat is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import xxhash

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.sync.snapshot import LocalFile, Snapshot

_CHUNK = 1 << 20


class DigestCache:
    """The digests of one folder's files, stored between commands."""

    def __init__(self, folder: Path, root: Path) -> None:
        """Open the cache of a root; an unreadable cache counts as empty."""
        self._path = folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"
        self._root = root
        self._known: dict[str, list[int | str]] = self._load()
        self._next: dict[str, list[int | str]] = {}

    def digest(self, file: LocalFile, snapshot: Snapshot) -> str:
        """Return the xxh3_128 of a file in a snapshot, in hex.

        Raises:
            OSError: it can't be read.
        """
        known = self._known.get(file.path)
        if known is not None and tuple(known[:-1]) == file.signature:
            self._next[file.path] = known
            return str(known[-1])
        digest = digest_file(file.source)
        if snapshot.is_settled(file):
            self._next[file.path] = [*file.signature, digest]
        return digest

    def save(self) -> None:
        """Store the digests that were asked for since the cache was opened, and drop all others."""
        if self._next != self._known:
            write_atomically(self._path, json.dumps({"root": str(self._root), "files": self._next}).encode())

    def _load(self) -> dict[str, list[int | str]]:
        try:
            kept = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        files: dict[str, list[int | str]] = kept["files"] if kept.get("root") == str(self._root) else {}
        return files


def digest_file(path: str) -> str:
    """Return the xxh3_128 of a file's content, in hex."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of times in a command
        whole = xxhash.xxh3_128()
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
        return whole.hexdigest()
