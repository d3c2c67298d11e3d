"""A box's clock, for who would have to wait for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class _Box(Protocol):
    cloud: Any

    def advance(self, seconds: float) -> None: ...


class BoxTime:
    """Implements `core.ports.Clock`: waiting takes no time, and passes for the cloud as well."""

    def __init__(self, box: _Box) -> None:
        self._box = box

    def now(self) -> datetime:
        """Return the box's time."""
        return datetime.fromtimestamp(self._box.cloud.clock.now(), UTC)

    def sleep(self, duration: timedelta) -> None:
        """Let it be later."""
        self._box.advance(duration.total_seconds())
