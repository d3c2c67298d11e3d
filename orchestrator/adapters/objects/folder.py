"""A folder as the object store: the kind that local machines reach."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from orchestrator.adapters.objects.results import Results

_CHUNK = 1 << 20


class FolderStore(Results):
    """The results of runs, in a folder that every local machine can reach."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        super().__init__(_Folder(self._root), workers=1)

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""
        return self._root.as_uri()


class _Folder:
    """Implements `Bucket`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str, most: int) -> bytes | None:
        try:
            with self._opened(key) as content:
                return content.read(most + 1)
        except FileNotFoundError:
            return None

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        with self._opened(key) as content:
            content.seek(start)
            while chunk := content.read(_CHUNK):
                yield chunk

    def remove(self, prefix: str) -> None:
        shutil.rmtree(self._root / prefix, ignore_errors=True)

    def where(self, key: str) -> str:
        return str(self._root / key)

    def _opened(self, key: str) -> IO[bytes]:
        """Open an object. A job may have put a pipe there, for which nobody waits."""
        file = os.fdopen(os.open(self._root / key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
        raise OSError(errno.EINVAL, "no plain file", str(self._root / key))
