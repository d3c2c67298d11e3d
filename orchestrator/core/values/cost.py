"""Calculates costs exactly: Decimal dollars, hours from durations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.values.units import hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """The period for which one machine is billed.

    Attributes:
        until: when it was confirmed to be gone; None while it may bill.
        once_usd: one-time cost of its volumes.
        at_least: the minimum time that is billed.
    """

    machine_id: str
    usd_per_hour: Decimal
    since: datetime
    until: datetime | None
    once_usd: Decimal = Decimal(0)
    at_least: timedelta = timedelta(0)

    def duration(self, now: datetime) -> timedelta:
        """Return how long it has existed."""
        return max(timedelta(0), (self.until or now) - self.since)

    def usd(self, now: datetime) -> Decimal:
        """Return what it has cost; the billed minimum counts once it is gone: before that, it may still be used up."""
        duration = self.duration(now)
        billed = duration if self.until is None else max(duration, self.at_least)
        return price_usd(self.usd_per_hour, billed) + self.once_usd


def spent_usd(rentals: Iterable[Rental], now: datetime) -> Decimal:
    """Add up what machines have cost so far."""
    return sum((rental.usd(now) for rental in rentals), Decimal(0))


def price_usd(usd_per_hour: Decimal, duration: timedelta) -> Decimal:
    """Return the price of a duration at an hourly price."""
    return usd_per_hour * hours(duration)
