"""What an instance's marks say is believed only within bounds: anybody in the account may have edited them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.adapters.cloud.marks import bound_lifetime, read_id, read_price
from orchestrator.core.job import DEFAULT_TIME_LIMIT


@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-1", "1e999999", "two", ""])
def test_what_is_no_price_is_zero(text: str) -> None:
    """It can be compared and added like any other."""
    assert read_price(text) == 0
    assert read_price("0.0974") == Decimal("0.0974")


@pytest.mark.parametrize("lifetime", [timedelta.max, timedelta.min, timedelta(0), timedelta(days=20_000)])
def test_a_lifetime_that_cannot_be_is_the_default_one(lifetime: timedelta) -> None:
    """A deadline can be computed with it."""
    assert bound_lifetime(lifetime) == DEFAULT_TIME_LIMIT
    assert bound_lifetime(timedelta(days=30)) == timedelta(days=30)


@pytest.mark.parametrize("text", ["a b", "", "../other", "-m1"])
def test_what_is_no_id_is_none(text: str) -> None:
    """It names no file and no run."""
    assert read_id(text) == ""
    assert read_id("digits-1-m1") == "digits-1-m1"
