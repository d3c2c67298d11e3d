"""Detects complete checkpoints: unchanged between two scans, and not truncated."""

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
        restless: checkpoints that are rewritten too often for that.
        whole: checkpoints that have changed, but are complete by their formats.
    """

    def __init__(self, results: Path) -> None:
        """Track the checkpoints of all tasks, by their paths in the results."""
        self._results = results
        self._seen: dict[str, Version] = {}
        self._sound: dict[str, tuple[Version, bool | None]] = {}
        self._changes: dict[str, int] = {}
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
        restless = {unit for unit, times in self._changes.items() if times > _PATIENCE}
        # A checkpoint that grows is still being written for the first time, however long that takes.
        self.restless = frozenset(unit for unit in restless if unit in self.whole or unit not in growing)

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
    """Whether any file (same path and inode) has grown."""
    had = {(path, inode): size for path, size, _, inode in before}
    return any(size > had.get((path, inode), size) for path, size, _, inode in now)


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
