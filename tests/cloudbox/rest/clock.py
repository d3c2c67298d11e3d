"""The box's clock: the computer's time, plus the time that tests let pass."""

from __future__ import annotations

import time


class BoxClock:
    """Seconds since 1970; a test may advance it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the box's time."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Advance the clock by so many seconds."""
        self._ahead += seconds

    def reset(self) -> None:
        """Return to the computer's time."""
        self._ahead = 0.0
