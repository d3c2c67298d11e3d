"""Keep the newest complete checkpoint apart before a command is started again, which may begin anew and overwrite it.

It is a copy: a command that opens its checkpoint and writes into it would change whatever shares that file. One is
kept, among the results: so it is in the object store, comes home, and is there on the next machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .attempt import Attempt
from .files import read_json, sync_folder, write_json
from .layout import Layout
from .standing import Standing, find_standing, is_sound, list_files

_RECORD = "kept.json"
_CHUNK_BYTES = 1 << 24
_SPARE_BYTES = 64 << 20
_FICLONE = 0x40049409


class _UnwantedError(Exception):
    """Somebody wants the command to stop, and nobody the copy."""


def find_kept(layout: Layout) -> Standing | None:
    """Return what is kept."""
    try:
        names = sorted(path.name for path in layout.kept.iterdir() if path.name != _RECORD)
    except OSError:
        return None
    found = [find_standing(layout.kept / name) for name in names if not name.startswith(".")]
    return next((each for each in found if each), None)


def keep_apart(layout: Layout, newest: Standing, last: Attempt, *, is_unwanted: Callable[[], bool]) -> str:
    """Keep a checkpoint apart, unless what is kept is further; return what there is to say of it.

    Args:
        layout: the machine's folders.
        newest: the newest complete checkpoint.
        last: the attempt before the one that is about to begin.
        is_unwanted: asked again and again while it is copied.

    Raises:
        OSError: it can't be copied.
    """
    kept = find_kept(layout)
    seconds = max(0.0, newest.written - last.began)
    if kept is not None and (kept == newest or not _is_further(layout, newest, seconds, kept)):
        return ""
    free = shutil.disk_usage(layout.results).free
    # The command needs room, too, for the checkpoint that it writes next.
    if newest.bytes * 2 + _SPARE_BYTES > free:
        return f"the disk has no room to keep checkpoint {newest.label} apart: a restart may overwrite it"
    draft = layout.kept / f".{newest.name}.tmp"
    layout.kept.mkdir(exist_ok=True)
    try:
        copy_checkpoint(layout.checkpoints / newest.name, draft, is_unwanted=is_unwanted)
        if is_sound(draft) is False:
            return ""
        _put_in_place(layout, draft, newest.name)
        write_json(layout.kept / _RECORD, {"name": newest.name, "seconds": seconds})
    except _UnwantedError:
        return ""
    finally:
        _remove(draft)
    return f"checkpoint {newest.label} is kept apart in {layout.kept.name}/"


def put_back(layout: Layout, damaged: Standing) -> bool:
    """Replace a checkpoint that isn't whole by the one of its name that is kept; False where there is none.

    Raises:
        OSError: it can't be copied.
    """
    kept = find_kept(layout)
    if kept is None or kept.name != damaged.name or not kept.bytes:
        return False
    target = layout.checkpoints / kept.name
    draft = target.with_name(f".{kept.name}.tmp")
    try:
        copy_checkpoint(layout.kept / kept.name, draft)
        _replace(draft, target)
    finally:
        _remove(draft)
    return True


def copy_checkpoint(source: Path, target: Path, *, is_unwanted: Callable[[], bool] = lambda: False) -> None:
    """Copy a checkpoint's file or folder, with its times; the copy outlives a power cut.

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
    """Copy an open file: at once where the file system shares what is the same until one changes, else by its bytes."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(writer, _FICLONE, reader)
        return
    while copied := os.read(reader, _CHUNK_BYTES):
        if is_unwanted():
            raise _UnwantedError
        while copied:
            copied = copied[os.write(writer, copied) :]


def _is_further(layout: Layout, newest: Standing, seconds: float, kept: Standing) -> bool:
    """Where nobody knows which one is further, the one that took longer to make stays: it costs nothing but age."""
    is_behind = newest.is_behind(kept)
    if is_behind is not None:
        return not is_behind
    took = read_json(layout.kept / _RECORD).get("seconds")
    return not isinstance(took, int | float) or seconds >= took


def _put_in_place(layout: Layout, draft: Path, name: str) -> None:
    """Let the new one take the old one's place; for an instant there may be two."""
    _replace(draft, layout.kept / name)
    sync_folder(layout.kept)
    for path in layout.kept.iterdir():
        if path.name not in (name, _RECORD):
            _remove(path)


def _replace(draft: Path, target: Path) -> None:
    """Rename over what is there: in one step, but for folders."""
    if target.is_dir() or draft.is_dir():
        _remove(target)
    draft.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
