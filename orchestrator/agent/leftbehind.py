"""Keep what a command wrote beside its outputs: a model that was saved into the working folder isn't lost.

Copies go to `results/left-behind/`, from where they travel as all results do; `results/left-behind.json` says what was
found. They are copies and no hard links: a command that is started again writes into its files in place.

Each end of a command adds to what is there, within the limits. A file of the same path is replaced only in name: the
older one, of an earlier attempt, stays beside it as `NAME.~1~`, then `NAME.~2~`, until there is no room for it.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from .errors import AgentError
from .files import read_json, write_json
from .layout import Layout
from .parse import clean_relative
from .results import is_temporary, is_utf8
from .timetable import plan_timetable
from .treerule import make_folders, stays_inside
from .wire import (
    LEFT_BEHIND_BYTES,
    LEFT_BEHIND_OVER_SSH_BYTES,
    LeftBehind,
    LeftFile,
    MachineConfig,
    RunConfig,
    to_json,
)
from .written import NOTHING, Findings, Written, find_written

_ROOM_BYTES = 256 << 20
"""What stays free on the disk."""
_MOST_FILES = 1_000
"""The store takes one after the other."""
_NAMED = 100
_NAME_LENGTH = 1024
_CHUNK_BYTES = 1 << 20
_SECRET_LENGTH = 8
_SECRET_FILE_BYTES = 1 << 20
"""Larger ones are no settings."""
_SECONDS = 15.0
_SECONDS_IF_STOPPED = 10.0
"""Who has asked for the stop waits for it."""
_SECONDS_IF_RECLAIMED = 3.0
"""A checkpoint is uploaded in what is left of the two minutes."""
_LOOKING_SECONDS = 2.0
"""To look costs little, and is done whatever the time is: what is lost is at least named."""


class _UnfitError(Exception):
    """Why a file isn't kept."""


def time_to_keep(layout: Layout, machine: MachineConfig, grace: float, *, is_stopped: bool) -> float:
    """Return until when files may be copied, in Unix seconds: never into the time that the last upload needs."""
    seconds = _SECONDS_IF_STOPPED if is_stopped else _SECONDS
    if read_json(layout.note("spot")).get("notice"):
        seconds = _SECONDS_IF_RECLAIMED
    return min(time.time() + seconds, plan_timetable(machine.created, machine.deadline, grace).last_ship)


def keep_left_behind(layout: Layout, machine: MachineConfig, config: RunConfig, release: Path, until: float) -> str:
    """Copy what a command left in its working folder to the results, newest first, and write down what there was.

    Args:
        layout: of this machine.
        machine: says whether there is a store.
        config: the run's.
        release: the working folder.
        until: when to stop copying, in Unix seconds.

    Returns:
        A remark for the log; empty where nothing was left behind.

    Raises:
        OSError: what was found can't be written down.
    """
    limit = _limit(machine, config)
    found = find_written(release, max(until, time.time() + _LOOKING_SECONDS)) if limit > 0 else NOTHING
    keeper = _Keeper(layout, release, limit, until, _secrets(config))
    said = keeper.keep(found, empty=_find_empty(layout, config))
    if said.files or said.empty or layout.left_behind_file.exists():
        write_json(layout.left_behind_file, to_json(said))
    return _describe(said)


def _limit(machine: MachineConfig, config: RunConfig) -> int:
    if config.left_behind is not None:
        return config.left_behind
    return LEFT_BEHIND_BYTES if machine.store_url else LEFT_BEHIND_OVER_SSH_BYTES


def _secrets(config: RunConfig) -> tuple[bytes, ...]:
    """Return what kedge copies nowhere by itself; a short value may stand in any file."""
    return tuple(
        value.encode(errors="surrogateescape") for value in config.secrets.values() if len(value) >= _SECRET_LENGTH
    )


def _find_empty(layout: Layout, config: RunConfig) -> tuple[str, ...]:
    """Name the outputs, and the folder for checkpoints, that hold no file."""
    places = [(path, layout.output / clean_relative(path)) for path in config.outputs]
    places += [(config.checkpoints, layout.checkpoints)] if config.checkpoints else []
    return tuple(path for path, place in places if not any(files for _, _, files in os.walk(place)))


def _describe(said: LeftBehind) -> str:
    if not said.files:
        return ""
    count = "1 file was" if said.files == 1 else f"{said.files:,} files were"
    kept = "kept" if said.kept == said.files else f"{said.kept:,} kept"
    return f"{count} written outside `outputs`: {kept} in left-behind/"


class _Keeper:
    """Copies files until the limit, the disk or the time is used up."""

    def __init__(
        self, layout: Layout, release: Path, limit: int, until: float, secrets: tuple[bytes, ...] = ()
    ) -> None:
        self._layout = layout
        self._release = release
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

    def _why_not(self, file: Written) -> str:
        """Keep a file; say why it can't be, or nothing where it is kept."""
        try:
            self._kept_bytes += self._keep_file(file)
            self._kept.add(file.path)
        except _UnfitError as err:
            return str(err)
        except OSError as err:
            return f"it can't be copied: {err.strerror or err}"
        return ""

    def _keep_file(self, file: Written) -> int:
        if not is_utf8(file.path):
            raise _UnfitError("its name is not UTF-8")
        if is_temporary(file.path):
            raise _UnfitError("its name is that of an unfinished file")
        if len(self._kept) == _MOST_FILES:
            raise _UnfitError(f"there are more than {_MOST_FILES:,} files")
        if self._kept_bytes + file.bytes > self._limit:
            raise _UnfitError(f"more than {self._limit:,} bytes were written")
        self._require_time()
        target = self._target(file.path)
        if _is_same(self._release / file.path, target):
            return file.bytes
        if shutil.disk_usage(self._layout.results).free < file.bytes + _ROOM_BYTES:
            raise _UnfitError("the disk has no room for it")
        return self._copy(file.path, target)

    def _target(self, path: str) -> Path:
        target = self._layout.left_behind / path
        make_folders(self._layout.results, str(target.relative_to(self._layout.results)))
        if target.is_dir() and not target.is_symlink():
            raise _UnfitError("an earlier attempt left a folder of its name")
        return target

    def _copy(self, path: str, target: Path) -> int:
        """Copy what the file holds now: one that is still being written is kept as far as it is."""
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", suffix=".tmp", dir=target.parent)
        temporary = Path(name)
        try:
            with open(descriptor, "wb") as copy:  # noqa: PTH123 - a descriptor, not a path
                status = self._write(path, copy.fileno())
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
            temporary.chmod(0o755 if status.st_mode & 0o100 else 0o644)
            if os.path.lexists(target):
                target.rename(_free_name(target))
            temporary.rename(target)
            return status.st_size
        finally:
            temporary.unlink(missing_ok=True)

    def _write(self, path: str, copy: int) -> os.stat_result:
        # What a link, or a pipe that nobody writes to, has taken the place of is no file any more.
        source = os.open(f"{self._release}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise _UnfitError("it is no file any more")
            if status.st_size <= _SECRET_FILE_BYTES and self._has_secret(source):
                raise _UnfitError("it holds one of the run's secrets")
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
        """Remove what earlier ends have kept, the oldest first, until all of it is within the limits."""
        folder = self._layout.left_behind
        kept = {folder / path for path in self._kept}
        # The command may have put a link in its place; those below are not followed.
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
        """Keep a link to a file that is kept; others lead to what was sent, to outputs, or out of the folder."""
        if not is_utf8(path) or is_temporary(path) or not stays_inside(path, target):
            return
        if os.path.normpath(f"{os.path.dirname(path)}/{target}").lstrip("/") not in self._kept:  # noqa: PTH120
            return
        with contextlib.suppress(OSError, AgentError, _UnfitError):
            place = self._target(path)
            if not os.path.lexists(place):
                place.symlink_to(target)


def _is_same(source: Path, kept: Path) -> bool:
    """Tell whether an earlier end has kept this very content."""
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
