"""Saves files that a command wrote outside its outputs, such as a model in the working folder.

They are copied to `results/left-behind/`, and uploaded and fetched like all results; `results/left-behind.json` lists
them. They are copies, not hard links, because a restarted command may write into its files in place.

Each end of a command adds files, within the limits. If a file with the same path exists, the older one, of an earlier
attempt, is renamed to `NAME.~1~`, then `NAME.~2~`, until there is no room for it.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
import time
from pathlib import Path

from ..base.config import TaskContext
from ..base.errors import AgentError
from ..base.files import read_json, replacing, write_json
from ..base.layout import Layout, TaskLayout
from ..base.parse import clean_relative
from ..base.record import to_json
from ..base.timetable import plan_timetable
from ..base.tree_rule import make_folders, stays_inside
from ..base.wire import (
    LEFT_BEHIND_BYTES,
    LEFT_BEHIND_OVER_SSH_BYTES,
    MachineConfig,
    RunConfig,
    TaskConfig,
)
from ..code.changed_files import NOTHING, ChangedFile, Findings, find_changed
from .described import LeftBehind, LeftFile
from .listing import is_temporary, is_utf8

_ROOM_BYTES = 256 << 20
"""Bytes that stay free on the disk."""
_MOST_FILES = 1_000
"""The most files, because the store takes them one by one."""
_NAMED = 100
_NAME_LENGTH = 1024
_CHUNK_BYTES = 1 << 20
_SECRET_LENGTH = 8
_SECRET_FILE_BYTES = 1 << 20
"""Only files up to this size may be settings."""
_SECONDS = 15.0
_SECONDS_IF_STOPPED = 10.0
"""The time for copying after a stop, because its caller waits."""
_SECONDS_IF_RECLAIMED = 3.0
"""The time for copying after a spot notice, because the rest of the two minutes is for uploading a checkpoint."""
_LOOKING_SECONDS = 2.0
"""The time for scanning, which always happens, so that files that can't be copied are at least listed."""


class _UnfitError(Exception):
    """The reason why a file isn't copied."""


def time_to_keep(layout: Layout, machine: MachineConfig, grace: float, *, is_stopped: bool) -> float:
    """Return until when files may be copied, in Unix seconds, leaving enough time for the last upload."""
    seconds = _SECONDS_IF_STOPPED if is_stopped else _SECONDS
    if read_json(layout.note("spot")).get("notice"):
        seconds = _SECONDS_IF_RECLAIMED
    return min(time.time() + seconds, plan_timetable(machine.created, machine.deadline_at, grace).last_upload)


def keep_left_behind(context: TaskContext, folder: Path, until: float) -> str:
    """Copy the files that a command left in its working folder to the results, newest first, and list them.

    Args:
        context: the task.
        folder: its working folder.
        until: when to stop copying, in Unix seconds.

    Returns:
        A line for the log; empty if nothing was left behind.

    Raises:
        OSError: the list can't be written.
    """
    task = context.task
    limit = _limit(context.machine, context.run)
    found = find_changed(folder, max(until, time.time() + _LOOKING_SECONDS)) if limit > 0 else NOTHING
    collector = _LeftBehindCollector(task, folder, limit, until, _secrets(context.run))
    # Of several machines, often only the head writes results.
    said = collector.keep(found, empty=() if context.machine.rank else _find_empty(task, context.config))
    if said.files or said.empty or task.left_behind_file.exists():
        write_json(task.left_behind_file, to_json(said))
    return _describe(said)


def _limit(machine: MachineConfig, config: RunConfig) -> int:
    if config.left_behind is not None:
        return config.left_behind
    return LEFT_BEHIND_BYTES if machine.store_url else LEFT_BEHIND_OVER_SSH_BYTES


def _secrets(config: RunConfig) -> tuple[bytes, ...]:
    """Return the secrets, which must not be copied; short ones are left out, because any file may contain them."""
    return tuple(
        value.encode(errors="surrogateescape") for value in config.secrets.values() if len(value) >= _SECRET_LENGTH
    )


def _find_empty(task: TaskLayout, config: TaskConfig) -> tuple[str, ...]:
    """List the outputs, and the checkpoint folder, that have no files."""
    places = [(path, task.output / clean_relative(path)) for path in config.outputs]
    places += [(config.checkpoints, task.checkpoints)] if config.checkpoints else []
    return tuple(path for path, place in places if not any(files for _, _, files in os.walk(place)))


def _describe(said: LeftBehind) -> str:
    if not said.files:
        return ""
    count = "1 file was" if said.files == 1 else f"{said.files:,} files were"
    kept = "kept" if said.kept == said.files else f"{said.kept:,} kept"
    return f"{count} written outside `outputs`: {kept} in left-behind/"


class _LeftBehindCollector:
    """Copies files until the limit, the disk or the time is used up."""

    def __init__(
        self, task: TaskLayout, folder: Path, limit: int, until: float, secrets: tuple[bytes, ...] = ()
    ) -> None:
        self._task = task
        self._folder = folder
        self._limit = limit
        self._until = until
        self._secrets = secrets
        self._kept: set[str] = set()
        self._kept_bytes = 0

    def keep(self, found: Findings, *, empty: tuple[str, ...]) -> LeftBehind:
        named: list[LeftFile] = []
        for file in found.files:
            why = self._why_not(file)
            if len(named) < _NAMED:
                named.append(LeftFile(path=_shown(file.path), bytes=file.bytes, left_out=why))
        for path, target in found.links.items():
            self._keep_link(path, target)
        self._remove_oldest()
        return LeftBehind(
            files=len(found.files),
            bytes=sum(file.bytes for file in found.files),
            kept=len(self._kept),
            kept_bytes=self._kept_bytes,
            named=tuple(named),
            empty=empty,
            is_whole=found.is_whole,
        )

    def _why_not(self, file: ChangedFile) -> str:
        """Copy a file; return why it can't be copied, or an empty string."""
        try:
            self._kept_bytes += self._keep_file(file)
            self._kept.add(file.path)
        except _UnfitError as err:
            return str(err)
        except OSError as err:
            return f"it can't be copied: {err.strerror or err}"
        return ""

    def _keep_file(self, file: ChangedFile) -> int:
        if not is_utf8(file.path):
            raise _UnfitError("its name is not UTF-8")
        if is_temporary(file.path):
            raise _UnfitError("its name marks it as unfinished")
        if len(self._kept) == _MOST_FILES:
            raise _UnfitError(f"there are more than {_MOST_FILES:,} files")
        if self._kept_bytes + file.bytes > self._limit:
            raise _UnfitError(f"more than {self._limit:,} bytes were written")
        self._require_time()
        target = self._target(file.path)
        if _is_same(self._folder / file.path, target):
            return file.bytes
        if shutil.disk_usage(self._task.results).free < file.bytes + _ROOM_BYTES:
            raise _UnfitError("the disk has no room for it")
        return self._copy(file.path, target)

    def _target(self, path: str) -> Path:
        target = self._task.left_behind / path
        make_folders(self._task.results, str(target.relative_to(self._task.results)))
        if target.is_dir() and not target.is_symlink():
            raise _UnfitError("an earlier attempt left a folder of its name")
        return target

    def _copy(self, path: str, target: Path) -> int:
        """Copy the file's current content, even if it is still being written."""
        with replacing(target) as copy:
            status = self._write(path, copy.fileno())
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fchmod(copy.fileno(), 0o755 if status.st_mode & 0o100 else 0o644)
            if os.path.lexists(target):
                target.rename(_free_name(target))
        return status.st_size

    def _write(self, path: str, copy: int) -> os.stat_result:
        # The file may have been replaced by a link, or by a pipe that nobody writes to.
        source = os.open(f"{self._folder}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise _UnfitError("it is no longer a file")
            if status.st_size <= _SECRET_FILE_BYTES and self._has_secret(source):
                raise _UnfitError("it contains one of the run's secrets")
            left = status.st_size
            while left and (chunk := os.read(source, min(left, _CHUNK_BYTES))):
                self._require_time()
                left -= len(chunk)
                while chunk:
                    chunk = chunk[os.write(copy, chunk) :]
        finally:
            os.close(source)
        return status

    def _has_secret(self, source: int) -> bool:
        content = os.pread(source, _SECRET_FILE_BYTES, 0) if self._secrets else b""
        return any(secret in content for secret in self._secrets)

    def _remove_oldest(self) -> None:
        """Remove files of earlier attempts, oldest first, until the total is within the limits."""
        folder = self._task.left_behind
        kept = {folder / path for path in self._kept}
        # The command may have replaced the folder by a link; links below it are not followed.
        tree = () if folder.is_symlink() else os.walk(folder)
        walked = (Path(base) / name for base, _, names in tree for name in names)
        files = sorted(((path.lstat(), path) for path in walked), key=lambda each: each[0].st_mtime_ns)
        over, more = sum(status.st_size for status, _ in files) - self._limit, len(files) - _MOST_FILES
        for status, path in files:
            if (over > 0 or more > 0) and path not in kept:
                path.unlink(missing_ok=True)
                over, more = over - status.st_size, more - 1

    def _require_time(self) -> None:
        if time.time() > self._until:
            raise _UnfitError("there was no time for it")

    def _keep_link(self, path: str, target: str) -> None:
        """Copy a link to a copied file; other links lead to the code, to outputs, or out of the folder."""
        if not is_utf8(path) or is_temporary(path) or not stays_inside(path, target):
            return
        if os.path.normpath(f"{os.path.dirname(path)}/{target}").lstrip("/") not in self._kept:  # noqa: PTH120
            return
        with contextlib.suppress(OSError, AgentError, _UnfitError):
            place = self._target(path)
            if not os.path.lexists(place):
                place.symlink_to(target)


def _is_same(source: Path, kept: Path) -> bool:
    """Whether this content has already been copied."""
    try:
        if kept.is_symlink() or kept.stat().st_size != source.lstat().st_size:
            return False
        return kept.stat().st_mtime_ns == source.lstat().st_mtime_ns or filecmp.cmp(source, kept, shallow=False)
    except OSError:
        return False


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(path.with_name(f"{path.name}.~{number}~")):
        number += 1
    return path.with_name(f"{path.name}.~{number}~")


def _shown(path: str) -> str:
    return path.encode(errors="backslashreplace").decode()[:_NAME_LENGTH]
