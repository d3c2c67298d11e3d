"""Keeps a copy of the newest complete checkpoint before a restart, because the command may start over and overwrite it.

It is a real copy, because a command that writes into its checkpoint file would also change a hard link. One copy is
kept, as part of the results: so it is uploaded, fetched, and restored on the next machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ..base.files import read_json, sync_folder, write_json
from ..base.layout import TaskLayout
from .attempt import Attempt
from .checkpoint_order import CheckpointProgress, is_sound, list_files, read_progress

_RECORD = "kept.json"
_CHUNK_BYTES = 1 << 24
_SPARE_BYTES = 64 << 20
_FICLONE = 0x40049409


class _UnwantedError(Exception):
    """The command has to stop, so the copy is no longer wanted."""


def find_kept_checkpoint(task: TaskLayout) -> CheckpointProgress | None:
    """Return the kept copy, if there is one."""
    try:
        names = sorted(path.name for path in task.kept.iterdir() if path.name != _RECORD)
    except OSError:
        return None
    found = [read_progress(task.kept / name) for name in names if not name.startswith(".")]
    return next((each for each in found if each), None)


def keep_copy(task: TaskLayout, newest: CheckpointProgress, last: Attempt, *, is_unwanted: Callable[[], bool]) -> str:
    """Keep a copy of a checkpoint, unless the existing copy is further; return a line for the log.

    Args:
        task: the task's folders.
        newest: the newest complete checkpoint.
        last: the previous attempt.
        is_unwanted: polled during the copy; True cancels it.

    Raises:
        OSError: it can't be copied.
    """
    kept = find_kept_checkpoint(task)
    seconds = max(0.0, newest.written - last.began)
    if kept is not None and (kept == newest or not _is_further(task, newest, seconds, kept)):
        return ""
    free = shutil.disk_usage(task.results).free
    # Leave room for the next checkpoint of the command, too.
    if newest.bytes * 2 + _SPARE_BYTES > free:
        return f"no room on the disk for a copy of checkpoint {newest.label}: a restart may overwrite it"
    draft = task.kept / f".{newest.name}.tmp"
    task.kept.mkdir(exist_ok=True)
    try:
        copy_checkpoint(task.checkpoints / newest.name, draft, is_unwanted=is_unwanted)
        if is_sound(draft) is False:
            return ""
        _put_in_place(task, draft, newest.name)
        write_json(task.kept / _RECORD, {"name": newest.name, "seconds": seconds})
    except _UnwantedError:
        return ""
    finally:
        _remove(draft)
    return f"a copy of checkpoint {newest.label} is kept in {task.kept.name}/"


def restore_kept(task: TaskLayout, damaged: CheckpointProgress) -> bool:
    """Replace a damaged checkpoint by the kept copy of the same name; False if there is none.

    Raises:
        OSError: it can't be copied.
    """
    kept = find_kept_checkpoint(task)
    if kept is None or kept.name != damaged.name or not kept.bytes:
        return False
    target = task.checkpoints / kept.name
    draft = target.with_name(f".{kept.name}.tmp")
    try:
        copy_checkpoint(task.kept / kept.name, draft)
        _replace(draft, target)
    finally:
        _remove(draft)
    return True


def adopt_checkpoint(source: TaskLayout, target: TaskLayout, name: str, *, is_unwanted: Callable[[], bool]) -> bool:
    """Copy a checkpoint of one task to another, durably, unless it is there already; False if it is no longer wanted.

    Raises:
        OSError: it can't be copied.
    """
    copied = target.checkpoints / name
    if is_sound(copied) is not False and read_progress(copied) == read_progress(source.checkpoints / name):
        return True
    draft = copied.with_name(f".{name}.tmp")
    try:
        copy_checkpoint(source.checkpoints / name, draft, is_unwanted=is_unwanted)
        _replace(draft, copied)
        sync_folder(target.checkpoints)
    except _UnwantedError:
        return False
    finally:
        _remove(draft)
    return True


def copy_checkpoint(source: Path, target: Path, *, is_unwanted: Callable[[], bool] = lambda: False) -> None:
    """Copy a checkpoint's file or folder durably, with its times.

    Raises:
        OSError: it can't be read or written.
    """
    _remove(target)
    for file in list_files(source):
        copied = target / file.relative_to(source) if source.is_dir() else target
        copied.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as reader, copied.open("wb") as writer:
            copy_open(reader.fileno(), writer.fileno(), is_unwanted)
            os.fsync(writer.fileno())
        status = file.stat()
        os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_open(reader: int, writer: int, is_unwanted: Callable[[], bool] = lambda: False) -> None:
    """Copy an open file: as a reflink if the file system supports it, else byte by byte."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(writer, _FICLONE, reader)
        return
    while copied := os.read(reader, _CHUNK_BYTES):
        if is_unwanted():
            raise _UnwantedError
        while copied:
            copied = copied[os.write(writer, copied) :]


def _is_further(task: TaskLayout, newest: CheckpointProgress, seconds: float, kept: CheckpointProgress) -> bool:
    """Whether the newest is further than the kept one; if unknown, the one that took longer counts as further."""
    is_behind = newest.is_behind(kept)
    if is_behind is not None:
        return not is_behind
    took = read_json(task.kept / _RECORD).get("seconds")
    return not isinstance(took, int | float) or seconds >= took


def _put_in_place(task: TaskLayout, draft: Path, name: str) -> None:
    """Replace the old copy by the new one; for a moment both may exist."""
    _replace(draft, task.kept / name)
    sync_folder(task.kept)
    for path in task.kept.iterdir():
        if path.name not in (name, _RECORD):
            _remove(path)


def _replace(draft: Path, target: Path) -> None:
    """Rename over an existing file or folder; atomic for files."""
    if target.is_dir() or draft.is_dir():
        _remove(target)
    draft.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
