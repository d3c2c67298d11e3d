"""Files that are either whole or absent, JSON that may be missing, and locks that die with their process."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import AgentError

POLL_SECONDS = 0.02
WHOLE_BYTES = 256 << 20
"""What is read in one piece, such as a list of files, is no larger than this."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a file aside, then rename it over `path`; `durable` makes it outlive a power cut."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(descriptor)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def open_log(path: Path) -> int:
    """Open a file that lines are added to; a link that the job has put in its place is removed and never followed.

    Returns:
        A descriptor that reads, and writes at the end.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except OSError:
        if not path.is_symlink():
            raise
    path.unlink()
    return os.open(path, flags, 0o644)


def write_json(path: Path, content: object, *, mode: int = 0o644, durable: bool = False) -> None:
    """Write a JSON file, whole or not at all."""
    write_atomically(path, json.dumps(content).encode() + b"\n", mode=mode, durable=durable)


def read_json(path: Path, limit_bytes: int = 1 << 24) -> dict[str, Any]:
    """Read a JSON object; empty where it is missing, too long or no JSON object."""
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(limit_bytes))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def join_bounded(chunks: Iterable[bytes], what: str) -> bytes:
    """Join what is read in one piece.

    Raises:
        AgentError: it is larger than WHOLE_BYTES: nothing that kedge writes is.
    """
    pieces: list[bytes] = []
    left = WHOLE_BYTES
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise AgentError(f"{what} is larger than {WHOLE_BYTES >> 20} MiB, and is not read")
        pieces.append(chunk)
    return b"".join(pieces)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Take a lock and return its descriptor, or None where somebody holds it. It is freed by any death."""
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
        AgentError: somebody else held it for `timeout` seconds.
    """
    give_up = time.monotonic() + timeout
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= give_up:
            raise AgentError("another kedge-agent is at work", why=f"it holds {path}", fix="try again when it is done")
        time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)
