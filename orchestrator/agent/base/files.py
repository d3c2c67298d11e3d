"""Atomic file writes, JSON files that may be missing, and locks that are released when their process dies."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import AgentError
from .polling import poll_until

_POLL_SECONDS = 0.02
WHOLE_BYTES = 256 << 20
"""The limit for anything that is read at once, such as a list of files."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a file atomically; `durable` makes it survive a power cut."""
    with replacing(path, mode=mode, durable=durable) as stream:
        stream.write(content)


@contextmanager
def replacing(path: Path, *, mode: int = 0o644, durable: bool = False) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `path` at the end of the block; if the block raises, nothing changes."""
    temporary = path.with_name(f".{path.name[:64]}.{os.urandom(8).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            if durable:
                os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, content: object, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json.dumps(content).encode() + b"\n", mode=mode, durable=durable)


def read_json(path: Path, limit_bytes: int = 1 << 24) -> dict[str, Any]:
    """Read a JSON object; empty if it is missing, too long or not a JSON object."""
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(limit_bytes))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def join_bounded(chunks: Iterable[bytes], what: str) -> bytes:
    """Join chunks in memory, up to WHOLE_BYTES.

    Raises:
        AgentError: there are more, which nothing that kedge writes has.
    """
    pieces: list[bytes] = []
    left = WHOLE_BYTES
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise AgentError(f"{what} is larger than {WHOLE_BYTES >> 20} MiB, and was not read")
        pieces.append(chunk)
    return b"".join(pieces)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_disk(path: Path) -> None:
    """Make everything durable that was written to a path's file system. Linux only.

    Raises:
        OSError: something could not be written.
    """
    import ctypes  # noqa: PLC0415 - most verbs do without

    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "its disk could not be written", str(path))
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Take a lock and return its descriptor, or None if somebody holds it. The process's end releases it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold a lock.

    Raises:
        AgentError: another process held it for `timeout` seconds.
    """
    descriptor = poll_until(lambda: try_lock(path), seconds=timeout, every=_POLL_SECONDS)
    if descriptor is None:
        raise AgentError("another kedge-agent is running", why=f"it holds {path}", fix="try again when it is done")
    try:
        yield
    finally:
        os.close(descriptor)
