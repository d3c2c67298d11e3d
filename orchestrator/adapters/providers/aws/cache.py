"""What AWS said within the last day, so that a launch needn't ask again, with its age for the plan to show.

One small file for each answer, replaced as a whole. The folder belongs to one account: quotas and zone names differ
between accounts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.files import write_atomically

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

DAY = timedelta(days=1)


class Cache:
    """Answers by kind and name. Threads may share one; damaged files count as missing."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._used: dict[str, datetime] = {}

    def remember(self, kind: str, name: str, ask: Callable[[], Any], *, max_age: timedelta = DAY) -> Any:
        """Return a kept answer that is young enough, else ask and keep what comes.

        Args:
            kind: what the answer is about, in the plural, as the plan shows it: `prices`.
            name: what tells the answers of a kind apart.
            ask: returns something JSON can carry; None is not kept.
            max_age: of a kept answer.
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
        """Drop a kept answer that is known to be old; none is no error."""
        self._path(kind, name).unlink(missing_ok=True)

    def basis(self) -> str:
        """Say how old what was used is: `live`, or `prices, zones of 2026-11-20 09:30 UTC, the rest live`."""
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
