"""Copy checkpoints aside that are rewritten too often to stand still, so that what is copied to the store is whole.

A file that is replaced by a rename stays what it was while it is open. One that is written in place must not change
while it is copied, and has to be whole by its own format, or else to have stood still for a moment.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .formats import is_whole
from .kept import copy_open
from .layout import Layout
from .results import Found

_TRIES = 3
_SPARE_BYTES = 64 << 20
_TICK_SECONDS = 0.05
"""Two writes that are closer may leave the same time."""


@dataclass(frozen=True)
class Snapshot:
    """Checkpoints as they were at one instant.

    Attributes:
        folder: where their files lie, under the same paths as in the results.
        files: what was copied, each with the inode of its copy.
    """

    folder: Path = Path()
    files: tuple[Found, ...] = ()
    units: frozenset[str] = field(default=frozenset())


NO_SNAPSHOT = Snapshot()


class _RestlessError(Exception):
    """It changes while it is copied, or isn't whole."""


@contextmanager
def take_snapshot(layout: Layout, found: Iterable[Found], units: frozenset[str], still: float) -> Iterator[Snapshot]:
    """Copy checkpoints aside for as long as they are needed; those that can't be are left out.

    Args:
        layout: the machine's folders.
        found: the files of the results.
        units: the checkpoints that are wanted.
        still: for how long a file has to have stood still whose format doesn't tell whether it is whole; seconds.
    """
    folder = layout.root / "snapshot"
    files: list[Found] = []
    try:
        for unit in sorted(units):
            wanted = [one for one in found if one.unit == unit and not one.link and not one.unfit]
            files += _take(layout, folder, wanted, still) if wanted else []
        yield Snapshot(folder, tuple(files), frozenset(one.unit for one in files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take(layout: Layout, folder: Path, wanted: list[Found], still: float) -> list[Found]:
    if sum(one.bytes for one in wanted) * 2 + _SPARE_BYTES > shutil.disk_usage(layout.root).free:
        return []
    for _ in range(_TRIES):
        try:
            taken = [_copy(layout.results, folder, one.path, still) for one in wanted]
            if len(taken) == 1 or not any(_has_changed(layout.results, one) for one in taken):
                return taken
        except (_RestlessError, OSError):
            continue
    return []


def _copy(results: Path, folder: Path, path: str, still: float) -> Found:
    """Copy one file through one descriptor, and make sure that it is a whole version of it."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with (results / path).open("rb") as reader, target.open("wb") as writer:
        before = os.fstat(reader.fileno())
        verdict = is_whole(results / path)
        if verdict is False:
            raise _RestlessError
        age = _TICK_SECONDS if verdict else max(still, _TICK_SECONDS)
        time.sleep(min(age, max(0.0, before.st_mtime + age - time.time())))
        copy_open(reader.fileno(), writer.fileno())
        after = os.fstat(reader.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or is_whole(target) is False:
        raise _RestlessError
    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    return Found(path, before.st_size, before.st_mtime_ns, target.stat().st_ino)


def _has_changed(results: Path, taken: Found) -> bool:
    now = (results / taken.path).stat()
    return (now.st_size, now.st_mtime_ns) != (taken.bytes, taken.mtime_ns)
