"""The system clock: the only module on the laptop that reads the time or sleeps."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta


class SystemClock:
    """The computer's clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)

    def sleep(self, duration: timedelta) -> None:
        """Let time pass; a negative duration passes at once."""
        time.sleep(max(0.0, duration.total_seconds()))
