"""A folder as the object store, for local machines."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from orchestrator.adapters.host.files import make_folder, write_atomically
from orchestrator.adapters.host.hashing import sha256_of
from orchestrator.adapters.store.object_store import StoredObject
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.errors import ConflictError

_CHUNK = 1 << 20


class FolderBucket:
    """Implements `ObjectStore`."""

    workers = 1

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._root.name

    @property
    def url(self) -> str:
        """The URL that machines get."""
        return self._root.as_uri()

    def where(self, key: str) -> str:
        """Return an object's path, for messages."""
        return str(self._root / key)

    def read(self, key: str, most: int) -> StoredObject | None:
        """Read a small object, or `most` + 1 bytes of a larger one; None if it doesn't exist."""
        try:
            with self._opened(key) as content:
                return StoredObject(content=content.read(most + 1), etag=_etag(content))
        except FileNotFoundError:
            return None

    def etag(self, key: str) -> str:
        """Return a text that changes with the file; empty if it doesn't exist."""
        try:
            with self._opened(key) as content:
                return _etag(content)
        except FileNotFoundError:
            return ""

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object in chunks, from a byte offset on.

        Raises:
            FileNotFoundError: it doesn't exist.
        """
        with self._opened(key) as content:
            content.seek(start)
            while chunk := content.read(_CHUNK):
                yield chunk

    def has(self, key: str, content: IO[bytes]) -> bool:
        """Tell whether an object has this content, by reading both."""
        content.seek(0)
        try:
            with self._opened(key) as found:
                return sha256_of(found) == sha256_of(content)
        except FileNotFoundError:
            return False

    def list(self, prefix: str) -> dict[str, datetime]:
        """List the keys with a prefix, and when each was written."""
        found: dict[str, datetime] = {}
        for path in self._root.rglob("*"):
            key = path.relative_to(self._root).as_posix()
            # An agent may remove contents that nothing refers to meanwhile.
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if key.startswith(prefix) and stat.S_ISREG(status.st_mode):
                    found[key] = datetime.fromtimestamp(status.st_mtime, UTC)
        return found

    def write(self, key: str, content: bytes, *, for_has: bool = True) -> None:  # noqa: ARG002 - nothing is hashed
        """Write an object."""
        write_atomically(self._root / key, content, within=self._root)

    def replace(self, key: str, content: bytes, etag: str) -> str:
        """Replace an object if it still has this etag, or create it if the etag is empty; return the new etag.

        Raises:
            ConflictError: it has been written meanwhile.
        """
        with self._locked():
            if self.etag(key) != etag:
                raise ConflictError(f"{self.where(key)} can't be written", why="somebody else has written it")
            self.write(key, content)
            return self.etag(key)

    def upload(self, key: str, file: Path, progress: TransferProgress) -> None:
        """Write an object from a file."""
        content = file.read_bytes()
        self.write(key, content)
        progress.add(len(content))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        for key in keys:
            (self._root / key).unlink(missing_ok=True)

    def remove(self, folder: str) -> None:
        """Remove a folder and its content; a missing one is ignored."""
        shutil.rmtree(self._root / folder, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self._root)
        handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _opened(self, key: str) -> IO[bytes]:
        """Open an object without blocking: a job may have put a pipe there."""
        file = os.fdopen(os.open(self._root / key, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(self._root / key))


def _etag(file: IO[bytes]) -> str:
    found = os.fstat(file.fileno())
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
