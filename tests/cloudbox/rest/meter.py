"""The meter: simulated costs, in dollars, of everything in an account."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from tests.cloudbox.rest.clock import BoxClock

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """One resource at one price; times in Unix seconds; `until` is None while it still bills."""

    id: str
    kind: str
    region: str
    what: str
    usd_per_hour: Decimal
    since: float
    until: float | None = None
    minimum_seconds: int = 0
    step_seconds: int = 0
    """Every step that has begun costs its full price; 0: billed by the second."""

    def usd(self, now: float) -> Decimal:
        """Return what it has cost until now, in dollars."""
        seconds = max(self.minimum_seconds, (now if self.until is None else self.until) - self.since)
        if self.step_seconds:
            seconds = math.ceil(seconds / self.step_seconds) * self.step_seconds
        return self.usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR


class Meter:
    """Reads the account after each change; `billing` returns what bills at a given time."""

    def __init__(self, clock: BoxClock, lock: threading.RLock, billing: Callable[[float], Iterable[Bill]]) -> None:
        self._clock = clock
        self._lock = lock
        self._billing = billing
        self._closed: list[Bill] = []
        self._open: dict[tuple[str, str], Bill] = {}

    def observe(self) -> None:
        """Open bills for new resources and close those of deleted ones."""
        with self._lock:
            now = self._clock.now()
            seen = {(bill.id, bill.what): bill for bill in self._billing(now)}
            for key in self._open.keys() - seen.keys():
                self._closed.append(replace(self._open.pop(key), until=now))
            for key in seen.keys() - self._open.keys():
                self._open[key] = seen[key]

    def usd(self) -> Decimal:
        """Return what everything has cost until now, in dollars."""
        return sum((bill.usd(self._clock.now()) for bill in self.bills()), Decimal(0))

    def bills(self) -> list[Bill]:
        """Return every bill, closed ones first."""
        with self._lock:
            self.observe()
            return [*self._closed, *self._open.values()]

    def billing(self) -> list[Bill]:
        """Return the bills that are still open."""
        with self._lock:
            self.observe()
            return list(self._open.values())

    def reset(self) -> None:
        """Forget all bills."""
        with self._lock:
            self._closed.clear()
            self._open.clear()
