"""The box's time: the computer's, and as much more as a test lets pass."""

from __future__ import annotations

import time


class BoxClock:
    """Seconds since 1970, which a test may move on."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the box's present."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._ahead += seconds

    def reset(self) -> None:
        """Return to the computer's time."""
        self._ahead = 0.0
