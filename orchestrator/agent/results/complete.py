"""Detects complete checkpoints: unchanged between two scans, and not truncated.

Some never are: one that is rewritten all the time, and those that are deleted before a second scan finds them, because
the command keeps only its newest few. They are to be copied before they are uploaded (snapshots.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ..base.record import instant
from ..base.wire import Checkpoint
from .checkpoint_order import is_log, is_sound, name_newest
from .listing import ResultEntry

Version = tuple[tuple[str, int, int, int], ...]
"""A checkpoint's files as a scan found them: path, size, time and inode of each."""
_PATIENCE = 2
"""A checkpoint that has changed in this many scans in a row counts as never settling."""


class Completeness:
    """Tracks the checkpoints over repeated scans.

    Attributes:
        complete: checkpoints that were unchanged between two scans, each with the version that was.
        restless: checkpoints that are rewritten, or deleted for newer ones, too often for that.
        whole: checkpoints that have changed, but are complete by their formats.
    """

    def __init__(self, results: Path) -> None:
        """Track the checkpoints of all tasks, by their paths in the results."""
        self._results = results
        self._seen: dict[str, Version] = {}
        self._sound: dict[str, tuple[Version, bool | None]] = {}
        self._changes: dict[str, int] = {}
        self._without: dict[str, int] = {}
        self.complete: Mapping[str, Version] = {}
        self.restless: frozenset[str] = frozenset()
        self.whole: frozenset[str] = frozenset()

    def look(self, found: Iterable[ResultEntry]) -> None:
        """Scan once; two equal scans in a row make a checkpoint complete."""
        now = versions(found)
        self._changes = {
            unit: 0 if self._seen.get(unit) == seen else self._changes.get(unit, 0) + 1 for unit, seen in now.items()
        }
        growing = {unit for unit, seen in now.items() if _has_grown(self._seen.get(unit, ()), seen)}
        self._seen = now
        self._sound = {unit: known for unit, known in self._sound.items() if unit in now}
        still = (unit for unit, times in self._changes.items() if not times)
        self.complete = {unit: now[unit] for unit in still if self._verdict(unit) is not False}
        self.whole = frozenset(unit for unit, times in self._changes.items() if times and self._verdict(unit))
        restless = {unit for unit, times in self._changes.items() if times > _PATIENCE} | self._short_lived(now)
        # A checkpoint that grows is still being written for the first time, however long that takes.
        self.restless = frozenset(unit for unit in restless if unit in self.whole or unit not in growing)

    @property
    def ready(self) -> dict[str, Version]:
        """What an upload would take now: complete checkpoints with their versions, and restless ones without."""
        return {**self.complete, **dict.fromkeys(self.restless, ())}

    def _short_lived(self, now: Mapping[str, Version]) -> set[str]:
        """Return the newest checkpoint of each folder in which none was complete in several scans in a row.

        Only files: a folder that is new might not have all its files yet.
        """
        written: dict[str, dict[str, float]] = {}
        for unit, version in now.items():
            if not is_log(unit):
                files = [(path, mtime_ns) for path, _, mtime_ns, _ in version if path == unit]
                written.setdefault(_folder(unit), {}).update(files)
        has_complete = {_folder(unit) for unit in self.complete if not is_log(unit)}
        self._without = {each: self._without.get(each, 0) + 1 for each in written.keys() - has_complete}
        return {name_newest(written[each]) for each, times in self._without.items() if times > _PATIENCE} - {""}

    def _verdict(self, unit: str) -> bool | None:
        """Whether a checkpoint is complete by its formats, which are read once for each version of it."""
        known = self._sound.get(unit)
        if known is None or known[0] != self._seen[unit]:
            known = self._sound[unit] = self._seen[unit], is_sound(self._results / unit)
        return known[1]


def versions(found: Iterable[ResultEntry]) -> dict[str, Version]:
    """Return the version of each checkpoint that a scan found."""
    seen: dict[str, Version] = {}
    for one in found:
        if one.unit:
            seen[one.unit] = (*seen.get(one.unit, ()), (one.path, one.bytes, one.mtime_ns, one.inode))
    return seen


def _has_grown(before: Version, now: Version) -> bool:
    """Whether any file (same path and inode) has grown, or there are more of them."""
    had = {(path, inode): size for path, size, _, inode in before}
    return 0 < len(before) < len(now) or any(size > had.get((path, inode), size) for path, size, _, inode in now)


def still_newest(stored: Mapping[str, float], present: Collection[str], uploaded: Collection[str]) -> set[str]:
    """Return each task's newest stored checkpoint, if the task has checkpoints, but none of them was uploaded.

    The command may have deleted it for a newer one; if the machine is lost now, there would be none to resume from.

    Args:
        stored: the checkpoints in the store, and when each was written.
        present: those that the tasks had at the last scan; no path for a file of none.
        uploaded: those of which the store has a version now.
    """
    replaced = set(map(_folder, uploaded))
    left: dict[str, dict[str, float]] = {}
    for unit, written in stored.items():
        left.setdefault(_folder(unit), {})[unit] = written
    return {
        name_newest(left[folder])
        for folder in {_folder(unit) for unit in present if not is_log(unit)} & left.keys() - replaced
    }


def newest(found: Iterable[ResultEntry], complete: Collection[str]) -> Checkpoint | None:
    """Return a task's complete checkpoint that was written last, preferably one with a number.

    Links to other checkpoints and logs don't count.
    """
    sizes: dict[str, int] = {}
    written: dict[str, int] = {}
    for one in found:
        if one.unit in complete and not one.link:
            sizes[one.unit] = sizes.get(one.unit, 0) + one.bytes
            if not is_log(one.path):
                written[one.unit] = max(written.get(one.unit, 0), one.mtime_ns)
    unit = name_newest(written)
    if not unit:
        return None
    return Checkpoint(name=unit.rpartition("/")[2], bytes=sizes[unit], written=instant(written[unit] / 1e9))


def _folder(unit: str) -> str:
    """Return the folder of a checkpoint, which is one task's."""
    return unit.rpartition("/")[0]
