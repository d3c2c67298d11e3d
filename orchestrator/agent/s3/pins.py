"""Verifies objects that decide what runs on the machine against the SHA-256 that the laptop has pinned.

The store isn't trusted: whoever has a bucket's keys can replace objects, and other machines may have them. Pins come
over channels that only the laptop can write to: user-data, or SSH.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..base.errors import AgentError
from .store import ObjectStore


@contextmanager
def opened(store: ObjectStore, key: str, pin: str, *, folder: Path) -> Iterator[IO[bytes]]:
    """Open an object for reading, after all of it was downloaded and verified against its pin.

    Args:
        store: the object store.
        key: the object's key.
        pin: the object's SHA-256.
        folder: for a temporary copy, on a disk with enough room.

    Raises:
        AgentError: its SHA-256 differs.
        OSError: it doesn't exist, it can't be read, or the disk is full.
    """
    digest = hashlib.sha256()
    with tempfile.TemporaryFile(dir=folder) as copy:
        for chunk in store.get(key):
            digest.update(chunk)
            copy.write(chunk)
        _compare(digest.hexdigest(), pin, key)
        copy.seek(0)
        yield copy


def require(content: bytes, pin: str, key: str) -> None:
    """Verify an object against its pin.

    Raises:
        AgentError: it is something else.
    """
    _compare(hashlib.sha256(content).hexdigest(), pin, key)


def _compare(found: str, pin: str, key: str) -> None:
    if found != pin:
        raise AgentError(
            f"{key} in the store was replaced",
            why=f"its SHA-256 is {found}, and the laptop pinned {pin or 'none'}: somebody has replaced it since",
            fix="find out who else has the bucket's keys; then send it again (`kedge resume`, or `kedge sync-data`)",
        )
