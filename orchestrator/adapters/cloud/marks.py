"""Reads what an instance's marks say. Anybody in the account may have edited them: invalid values count as missing."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal, InvalidOperation

from orchestrator.adapters.host.ids import is_id
from orchestrator.core.job import DEFAULT_TIME_LIMIT

_LONGEST = timedelta(days=3_660)
_MOST_USD_PER_HOUR = Decimal(1_000_000)


def read_id(text: str) -> str:
    """Return the id of a machine or a run; empty if the text isn't one."""
    return text if is_id(text) else ""


def read_price(text: str) -> Decimal:
    """Return USD per hour; 0 if the text isn't a price."""
    try:
        price = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return price if price.is_finite() and 0 <= price <= _MOST_USD_PER_HOUR else Decimal(0)


def bound_lifetime(lifetime: timedelta) -> timedelta:
    """Return a lifetime; the default one if it isn't positive, or is longer than ten years."""
    return lifetime if timedelta(0) < lifetime <= _LONGEST else DEFAULT_TIME_LIMIT
