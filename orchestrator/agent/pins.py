"""Objects that decide what runs are taken from the store only with the SHA-256 that the laptop has pinned.

The store isn't trusted: whoever has the keys of a bucket can replace what lies there, and other machines may have them.
The pins come by ways that only the laptop can write to: user-data, or SSH.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import AgentError
from .store import ObjectStore

PIN = re.compile("[0-9a-f]{64}")
"""A SHA-256 as it is written in orders."""


@contextmanager
def opened(store: ObjectStore, key: str, pin: str, *, folder: Path) -> Iterator[IO[bytes]]:
    """Open an object to read: not one byte of it can be read before all of it was compared with its pin.

    Args:
        store: where it lies.
        key: its key.
        pin: its SHA-256.
        folder: on the disk that has room for it meanwhile.

    Raises:
        AgentError: it is something else.
        OSError: there is none, it can't be read, or the disk is full.
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
    """Compare an object with its pin.

    Raises:
        AgentError: it is something else.
    """
    _compare(hashlib.sha256(content).hexdigest(), pin, key)


def _compare(found: str, pin: str, key: str) -> None:
    if found != pin:
        raise AgentError(
            f"{key} in the store isn't what was ordered",
            why=f"its SHA-256 is {found}, and the order names {pin or 'none'}: somebody has replaced it since",
            fix="find out who else has the bucket's keys; then send it again (`kedge resume`, or `kedge sync-data`)",
        )
