"""The limits of DigitalOcean's API: 250 calls a minute, 5,000 an hour (API reference, "Rate Limit", 2026-11).

fact: do-rate-limits
"""

from __future__ import annotations

import threading
from collections import deque

from tests.cloudbox.digitalocean.account.call import ApiError
from tests.cloudbox.rest.clock import BoxClock


class RateLimit:
    """Counts calls in windows that slide."""

    def __init__(self, clock: BoxClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: deque[float] = deque()

    def count(self, *, per_minute: int, per_hour: int, retry_after: bool) -> dict[str, str]:
        """Count a call, and return the headers that tell how many are left.

        Raises:
            ApiError: this one is too many, and isn't counted.
        """
        now = self._clock.now()
        with self._lock:
            while self._calls and self._calls[0] <= now - 3600:
                self._calls.popleft()
            minute = [at for at in self._calls if at > now - 60]
            frees = [minute[0] + 60] if len(minute) >= per_minute else []
            frees += [self._calls[0] + 3600] if len(self._calls) >= per_hour else []
            oldest = self._calls[0] if self._calls else now
            headers = {
                "ratelimit-limit": str(per_hour),
                "ratelimit-remaining": str(max(0, per_hour - len(self._calls) - 1)),
                "ratelimit-reset": str(int(oldest + 3600)),
            }
            if not frees:
                self._calls.append(now)
                return headers
        wait = {"Retry-After": str(max(1, round(max(frees) - now + 0.5)))} if retry_after else {}
        raise ApiError(429, "too_many_requests", "API rate limit exceeded.", {**headers, **wait})

    def reset(self) -> None:
        """Count from here."""
        with self._lock:
            self._calls.clear()
