"""Digests of file contents, remembered for as long as a file's stat says that it is the same."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import timedelta
from pathlib import Path

import xxhash

from orchestrator.adapters.files import write_atomically
from orchestrator.core.ports import Clock

_CHUNK = 1 << 20
# A file written twice within a tick of the file system's clock looks the same both times: what is this young when
# it is read is read again next time. Two seconds is FAT's tick, the coarsest in use.
_SETTLED = timedelta(seconds=2)


class DigestCache:
    """The digests of one folder's files, kept between commands."""

    def __init__(self, folder: Path, root: Path, clock: Clock) -> None:
        """Open the cache of a root; a cache that can't be read is an empty one."""
        self._path = folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"
        self._root = root
        self._settled_ns = int((clock.now() - _SETTLED).timestamp() * 1e9)
        self._known: dict[str, list[int | str]] = self._load()
        self._next: dict[str, list[int | str]] = {}

    def digest(self, path: str, found: os.stat_result) -> str:
        """Return xxh3_128 of a file, in hex; `found` is what lstat says of it.

        Raises:
            OSError: it can't be read.
        """
        signature = [found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino]
        known = self._known.get(path)
        if known is not None and known[:-1] == signature:
            self._next[path] = known
            return str(known[-1])
        digest = digest_file(f"{self._root}/{path}")
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._settled_ns:
            self._next[path] = [*signature, digest]
        return digest

    def save(self) -> None:
        """Keep what was asked for since the cache was opened, and nothing else."""
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
    """Return xxh3_128 of a file's content, in hex."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands of times in a command
        whole = xxhash.xxh3_128()
        while chunk := file.read(_CHUNK):
            whole.update(chunk)
        return whole.hexdigest()
