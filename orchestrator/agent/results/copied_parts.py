"""Keeps track of the parts of checkpoints that this machine has copied from the run's other machines.

They aren't its own results: it neither uploads nor lists them, and they don't tell what it can resume from. A part that
the command has written again is its own. Before an attempt they are put away, so that only the machine's own files are
left; those that are still wanted come back without a download.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..base.files import read_json, sync_folder, write_json
from ..base.layout import Layout, TaskLayout
from ..base.record import Record, to_json

_RECORD = "record.json"
_CLOCK_STEP = 0.001  # seconds: a time loses its last digits on its way through the store


class CopiedPart(Record):
    """A file, or a link, that another machine has written; `mtime` is in Unix seconds, `link` a link's target."""

    bytes: int
    mtime: float
    sha256: str
    link: str = ""

    def is_like(self, size: int, mtime_ns: int, link: str) -> bool:
        """Whether a file of this size and time, or a link with this target, is still the copy."""
        if link or self.link:
            return link == self.link
        return size == self.bytes and abs(mtime_ns / 1e9 - self.mtime) < _CLOCK_STEP


def list_copied(layout: Layout) -> dict[str, CopiedPart]:
    """List the recorded parts of all tasks, by their paths in the results."""
    try:
        folders = sorted(_folder(layout).iterdir())
    except OSError:
        return {}
    return {path: part for folder in folders for path, part in _read(folder / _RECORD).items()}


def record_copied(task: TaskLayout, parts: Mapping[str, CopiedPart]) -> None:
    """Record parts, before any of them is there: from then on they aren't taken for the machine's own."""
    folder = _place(task)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / _RECORD, {path: to_json(part) for path, part in parts.items()}, durable=True)


def put_away(task: TaskLayout) -> None:
    """Move the parts out of the results, while the command isn't running. After a kill, the next call continues.

    Raises:
        OSError: one can't be moved.
    """
    folder = _place(task)
    parts = _read(folder / _RECORD)
    if not parts:
        return
    for path, part in parts.items():
        place = task.machine.results / path
        if not os.path.lexists(place):
            continue
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode) and part.is_like(0, 0, str(place.readlink())):
            place.unlink()
        if stat.S_ISREG(status.st_mode) and part.is_like(status.st_size, status.st_mtime_ns, ""):
            place.replace(folder / part.sha256)
    _remove_empty(task, parts)
    sync_folder(folder)
    record_copied(task, {})


def take_back(task: TaskLayout, part: CopiedPart, target: Path) -> bool:
    """Move a part that was put away to its place again; False if it isn't there.

    Raises:
        OSError: it can't be moved.
    """
    kept = _place(task) / part.sha256
    if part.link:
        return False
    try:
        if kept.stat().st_size != part.bytes:
            return False
        os.utime(kept, (part.mtime, part.mtime))
        target.parent.mkdir(parents=True, exist_ok=True)
        kept.replace(target)
    except FileNotFoundError:
        return False
    return True


def drop_put_away(task: TaskLayout) -> None:
    """Remove the parts that nobody wants back."""
    with contextlib.suppress(OSError):
        for path in _place(task).iterdir():
            if path.name != _RECORD:
                path.unlink()


def forget_copied(task: TaskLayout) -> None:
    """Remove the parts, and their record."""
    put_away(task)
    shutil.rmtree(_place(task), ignore_errors=True)


def _folder(layout: Layout) -> Path:
    return layout.root / "copied-parts"


def _place(task: TaskLayout) -> Path:
    return _folder(task.machine) / (task.key.replace("/", "+") or "+")


def _read(record: Path) -> dict[str, CopiedPart]:
    parts = ((path, _parse(row)) for path, row in read_json(record).items())
    return {path: part for path, part in parts if part is not None}


def _parse(row: Any) -> CopiedPart | None:
    match row:
        case {"bytes": int(size), "mtime": int() | float() as mtime, "sha256": str(sha256)}:
            return CopiedPart(size, mtime, sha256, str(row.get("link", "")))
        case _:
            return None


def _remove_empty(task: TaskLayout, paths: Iterable[str]) -> None:
    """Remove the folders of checkpoints in which nothing is left."""
    for path in paths:
        folder = (task.machine.results / path).parent
        while folder != task.checkpoints and folder.is_relative_to(task.checkpoints):
            try:
                folder.rmdir()
            except OSError:
                break
            folder = folder.parent
