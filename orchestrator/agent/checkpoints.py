"""Which checkpoints are complete: those whose sizes and times stood still over two looks."""

from __future__ import annotations

from collections.abc import Iterable

from .results import Found
from .wire import Checkpoint, instant

_Signature = tuple[tuple[str, int, int, int], ...]


class Completeness:
    """Look at the results again and again."""

    def __init__(self) -> None:
        self._seen: dict[str, _Signature] = {}
        self.complete: frozenset[str] = frozenset()

    def look(self, found: Iterable[Found]) -> None:
        """Take one look; two in a row that agree make a checkpoint complete."""
        now: dict[str, _Signature] = {}
        for one in found:
            if one.unit:
                now[one.unit] = (*now.get(one.unit, ()), (one.path, one.bytes, one.mtime_ns, one.inode))
        self.complete = frozenset(unit for unit, seen in now.items() if self._seen.get(unit) == seen)
        self._seen = now


def newest(found: Iterable[Found], complete: frozenset[str]) -> Checkpoint | None:
    """Return the complete checkpoint that was written last; links to others don't count."""
    sizes: dict[str, int] = {}
    written: dict[str, int] = {}
    for one in found:
        if one.unit in complete and not one.link:
            sizes[one.unit] = sizes.get(one.unit, 0) + one.bytes
            written[one.unit] = max(written.get(one.unit, 0), one.mtime_ns)
    if not written:
        return None
    name = max(written, key=lambda unit: (written[unit], unit))
    return Checkpoint(name=name, bytes=sizes[name], written=instant(written[name] / 1e9))
