"""Clocks on which waiting takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class FakeClock:
    """Time that passes only when somebody sleeps.

    Attributes:
        pauses: how long was slept, each time.
    """

    time: datetime = datetime(2026, 11, 21, tzinfo=UTC)
    pauses: list[timedelta] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time

    def sleep(self, duration: timedelta) -> None:
        self.pauses.append(duration)
        self.time += duration
