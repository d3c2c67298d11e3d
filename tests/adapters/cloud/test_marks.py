"""The values of an instance's marks are bounded, because anybody in the account may have edited them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.adapters.cloud.marks import bound_lifetime, read_id, read_price
from orchestrator.core.job import DEFAULT_TIME_LIMIT


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-1", "1e999999", "two", ""])
def test_an_invalid_price_is_read_as_zero(text: str) -> None:
    """Zero can be compared and added like any price."""
    assert read_price(text) == 0
    assert read_price("0.0974") == Decimal("0.0974")


@pytest.mark.parametrize("lifetime", [timedelta.max, timedelta.min, timedelta(0), timedelta(days=20_000)])
def test_an_impossible_lifetime_is_read_as_the_default(lifetime: timedelta) -> None:
    """A deadline can be computed from the result."""
    assert bound_lifetime(lifetime) == DEFAULT_TIME_LIMIT
    assert bound_lifetime(timedelta(days=30)) == timedelta(days=30)


@pytest.mark.parametrize("text", ["a b", "", "../other", "-m1"])
def test_an_invalid_id_is_read_as_empty(text: str) -> None:
    """An empty id names no file and no run."""
    assert read_id(text) == ""
    assert read_id("digits-1-m1") == "digits-1-m1"
