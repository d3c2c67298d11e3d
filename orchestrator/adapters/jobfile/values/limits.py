"""Parses a run's durations and amounts of money, with upper limits."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.units import parse_duration, parse_usd

_LONGEST = timedelta(days=365)
_DEAREST = Decimal(1_000_000)


def parse_limited_duration(text: str) -> timedelta:
    """Parse a duration of at most a year.

    Raises:
        BadRequestError: it is not a duration with a unit, or is longer.
    """
    try:
        duration = parse_duration(text)
    except OverflowError:
        duration = timedelta.max
    if duration > _LONGEST:
        raise BadRequestError(f"{text[:40]!r} is longer than a year", fix="write for example 90m, 8h or 2d")
    return duration


def parse_limited_usd(text: str) -> Decimal:
    """Parse at most a million US dollars.

    Raises:
        BadRequestError: it is not an amount, or is larger.
    """
    amount = parse_usd(text)
    if amount > _DEAREST:
        raise BadRequestError(f"{text[:40]!r} is more than a million dollars", fix="write for example 10 or $10")
    return amount
