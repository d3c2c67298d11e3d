"""A clock for tests against a box: it reads the box's time, and advances it instead of waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class _Box(Protocol):
    cloud: Any

    def advance(self, seconds: float) -> None: ...


class BoxTime:
    """Implements `core.ports.Clock`: waiting takes no real time, and the same time passes for the cloud."""

    def __init__(self, box: _Box) -> None:
        self._box = box

    def now(self) -> datetime:
        """Return the box's time."""
        return datetime.fromtimestamp(self._box.cloud.clock.now(), UTC)

    def sleep(self, duration: timedelta) -> None:
        """Advance the box's time."""
        self._box.advance(duration.total_seconds())
