"""A cache of AWS's answers for a day, which reports their age for the plan.

Each answer is a small file, replaced as a whole. The folder is for one account: quotas and zone names differ between
accounts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.host.files import write_atomically

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

DAY = timedelta(days=1)


class Cache:
    """Answers by kind and name. Thread-safe; damaged files count as missing."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._used: dict[str, datetime] = {}

    def remember(self, kind: str, name: str, ask: Callable[[], Any], *, max_age: timedelta = DAY) -> Any:
        """Return a cached answer that is recent enough; else call `ask` and cache the result.

        Args:
            kind: the plural of what the answer is about, as the plan shows it: `prices`.
            name: distinguishes answers of the same kind.
            ask: returns a JSON value; None is not cached.
            max_age: of a cached answer.
        """
        path = self._path(kind, name)
        kept = _read(path)
        if kept is not None and timedelta(0) <= self._clock.now() - kept[0] <= max_age:
            self._used[kind] = min(kept[0], self._used.get(kind, kept[0]))
            return kept[1]
        value = ask()
        if value is not None:
            entry = {"name": name, "at": self._clock.now().isoformat(), "value": value}
            write_atomically(path, json.dumps(entry).encode())
        return value

    def forget(self, kind: str, name: str) -> None:
        """Drop a cached answer; a missing one is no error."""
        self._path(kind, name).unlink(missing_ok=True)

    def basis(self) -> str:
        """Say how old the used answers are: `live`, or `prices, zones of 2026-11-20 09:30 UTC, the rest live`."""
        if not self._used:
            return "live"
        oldest = min(self._used.values())
        return f"{', '.join(sorted(self._used))} of {oldest:%Y-%m-%d %H:%M} UTC, the rest live"

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _read(path: Path) -> tuple[datetime, Any] | None:
    try:
        entry = json.loads(path.read_bytes())
        return datetime.fromisoformat(entry["at"]), entry["value"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
