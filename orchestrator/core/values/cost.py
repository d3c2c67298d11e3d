"""Calculates costs exactly: Decimal dollars, hours from durations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
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


def clip(rentals: Iterable[Rental], since: datetime | None, until: datetime) -> tuple[Rental, ...]:
    """Return the parts of rentals within a period; one-time costs belong to the period in which a rental begins.

    Args:
        rentals: any.
        since: the period's begin; None for the beginning of all.
        until: its end.
    """
    parts = []
    for rental in rentals:
        begin = max(rental.since, since or rental.since)
        end = min(rental.until or until, until)
        if begin < end:
            once = rental.once_usd if begin == rental.since else Decimal(0)
            parts.append(replace(rental, since=begin, until=end, once_usd=once, at_least=timedelta(0)))
    return tuple(parts)


def covered(rentals: Iterable[Rental], now: datetime) -> timedelta:
    """Return how long there has been at least one machine: what several do at the same time counts once."""
    total, latest = timedelta(0), datetime.min.replace(tzinfo=now.tzinfo)
    for rental in sorted(rentals, key=lambda each: each.since):
        end = rental.until or now
        total += max(timedelta(0), end - max(latest, rental.since))
        latest = max(latest, end)
    return total


def spent_usd(rentals: Iterable[Rental], now: datetime) -> Decimal:
    """Add up what machines have cost so far."""
    return sum((rental.usd(now) for rental in rentals), Decimal(0))


def price_usd(usd_per_hour: Decimal, duration: timedelta) -> Decimal:
    """Return the price of a duration at an hourly price."""
    return usd_per_hour * hours(duration)
