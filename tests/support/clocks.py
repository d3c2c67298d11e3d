"""A clock that skips waiting times."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class FakeClock:
    """A clock on which time passes only during `sleep`.

    Attributes:
        pauses: how long each call of `sleep` was.
    """

    time: datetime = datetime(2026, 11, 21, tzinfo=UTC)
    pauses: list[timedelta] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time

    def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration)
        self.time += duration
