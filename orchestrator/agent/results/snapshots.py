"""Makes consistent copies of checkpoints that are rewritten too often to settle, so that they can be uploaded.

A file that is replaced by a rename stays the same while it is open. A file that is written in place must not change
during the copy, and must be complete by its format, or unchanged for a moment before.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..base.layout import Layout
from ..base.record import Record
from .checkpoint_formats import is_whole
from .kept_checkpoint import copy_open
from .listing import ResultEntry

_TRIES = 3
_SPARE_BYTES = 64 << 20
_TICK_SECONDS = 0.05
"""Two writes that are closer together may have the same timestamp."""


class CheckpointSnapshot(Record):
    """Copies of checkpoints at one point in time.

    Attributes:
        folder: the copies, under the same paths as in the results.
        files: the copied files, each with the inode of its copy.
    """

    folder: Path = Path()
    files: tuple[ResultEntry, ...] = ()
    units: frozenset[str] = frozenset()


NO_SNAPSHOT = CheckpointSnapshot()


class _RestlessError(Exception):
    """The checkpoint changed during the copy, or isn't complete."""


@contextmanager
def take_snapshot(
    layout: Layout, found: Iterable[ResultEntry], units: frozenset[str], still: float
) -> Iterator[CheckpointSnapshot]:
    """Copy checkpoints for the duration of the block; those that can't be copied are left out.

    Args:
        layout: the machine's folders.
        found: the files of the results.
        units: the checkpoints to copy.
        still: how long a file whose format doesn't tell whether it is complete must have been unchanged; seconds.
    """
    folder = layout.root / "snapshot"
    files: list[ResultEntry] = []
    try:
        for unit in sorted(units):
            wanted = [one for one in found if one.unit == unit and not one.link and not one.unfit]
            files += _take(layout, folder, wanted, still) if wanted else []
        yield CheckpointSnapshot(folder, tuple(files), frozenset(one.unit for one in files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take(layout: Layout, folder: Path, wanted: list[ResultEntry], still: float) -> list[ResultEntry]:
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


def _copy(results: Path, folder: Path, path: str, still: float) -> ResultEntry:
    """Copy one file through one descriptor, and check that the copy is a complete version."""
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
    return ResultEntry(path, before.st_size, before.st_mtime_ns, target.stat().st_ino)


def _has_changed(results: Path, taken: ResultEntry) -> bool:
    now = (results / taken.path).stat()
    return (now.st_size, now.st_mtime_ns) != (taken.bytes, taken.mtime_ns)
