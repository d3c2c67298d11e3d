"""Hold a machine's folder against a second creation of the same machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from orchestrator.adapters.providers.local.waiting import wait_until
from orchestrator.core.errors import ConflictError
from orchestrator.core.ports import Clock

_LIMIT = timedelta(seconds=60)


@contextmanager
def claim(root: Path, clock: Clock) -> Iterator[None]:
    """Hold the folder, made where there is none; a crash of this process lets go of it.

    Raises:
        ConflictError: another process holds it for too long.
    """
    held: list[int] = []
    if not wait_until(lambda: _try_hold(root, held), _LIMIT, clock):
        raise ConflictError(
            f"another command has been creating machine {root.name} for a minute",
            fix="wait for it, or end it",
        )
    try:
        yield
    finally:
        os.close(held[0])


def _try_hold(root: Path, held: list[int]) -> bool:
    """Lock the folder, and add the open folder that holds the lock; False where another process does."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError, BlockingIOError):
        opened = os.open(root, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # While this process waited, the folder may have been removed, and made again by another.
            if os.path.samestat(os.fstat(opened), root.stat()):
                held.append(opened)
        finally:
            if not held:
                os.close(opened)
    return bool(held)
