"""Durations, money and sizes, as people write and read them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.render import print_json
from orchestrator.core.cost import Rental, price_usd, spent_usd
from orchestrator.core.errors import BadRequestError
from orchestrator.core.units import (
    format_bytes,
    format_duration,
    format_usd,
    parse_bytes,
    parse_duration,
    parse_usd,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("1h 5m", 3900)]
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: int) -> None:
    """Units add up, and spaces don't matter."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "90", "h", "-1h", "1w", "0s", "1h-5m", "nan", "1:30"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    """A bare number could be seconds or hours: nobody guesses."""
    with pytest.raises(BadRequestError, match="duration") as caught:
        parse_duration(text)
    assert "30m" in caught.value.fix


@given(st.integers(min_value=1, max_value=10**7))
def test_what_is_printed_of_a_duration_parses_to_at_most_a_unit_less(seconds: int) -> None:
    """Two units are printed: what is lost is smaller than the second of them."""
    printed = parse_duration(format_duration(timedelta(seconds=seconds)))
    assert timedelta(0) <= timedelta(seconds=seconds) - printed < timedelta(hours=1)


def test_half_a_cent_is_rounded_up() -> None:
    """2.5 h at $1.99 is $4.975: the W0 script printed $4.97."""
    assert format_usd(price_usd(Decimal("1.99"), timedelta(hours=2.5))) == "$4.98"


@pytest.mark.parametrize("text", ["ten", "-1", "NaN", "Infinity", "", "1,5"])
def test_money_that_is_no_amount_is_refused(text: str) -> None:
    """Neither negative nor endless budgets exist."""
    with pytest.raises(BadRequestError):
        parse_usd(text)


def test_dollars_may_carry_their_sign() -> None:
    """Both ways of writing mean the same."""
    assert parse_usd("$10.50") == parse_usd("10.50") == Decimal("10.5")


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("500MB", 500_000_000), ("1.5 gb", 1_500_000_000), ("20 B", 20), ("1TB", 10**12)]
)
def test_a_size_is_a_number_with_a_unit(text: str, count: int) -> None:
    """Upper or lower case; nothing needs none."""
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "5", "-1GB", "GB", "1GiB", "1PB", "1e3MB", "nan"])
def test_a_size_that_could_mean_anything_is_refused(text: str) -> None:
    """A bare number could be bytes or gigabytes."""
    with pytest.raises(BadRequestError, match="size"):
        parse_bytes(text)


def test_bytes_are_printed_with_decimal_units() -> None:
    """As disks and networks are sold."""
    assert [format_bytes(n) for n in (999, 1500, 22_000_000)] == ["999 B", "1.5 kB", "22.0 MB"]


def test_a_machine_that_is_gone_costs_no_more() -> None:
    """The meter runs from creation to the confirmed end; a live machine's runs to now."""
    from datetime import UTC, datetime

    start = datetime(2026, 1, 1, tzinfo=UTC)
    gone = Rental(machine_id="a", usd_per_hour=Decimal(2), since=start, until=start + timedelta(hours=1))
    live = Rental(machine_id="b", usd_per_hour=Decimal(3), since=start + timedelta(hours=1), until=None)
    assert spent_usd([gone, live], start + timedelta(hours=3)) == Decimal(8)


def test_a_machine_that_is_gone_costs_its_minimum() -> None:
    """However soon it went; of one that lives the minimum may yet be used up, and isn't counted twice."""
    from datetime import UTC, datetime

    start, minimum = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=5)
    minute = start + timedelta(minutes=1)
    gone = Rental(machine_id="a", usd_per_hour=Decimal(12), since=start, until=minute, at_least=minimum)
    assert spent_usd([gone], start + timedelta(hours=1)) == Decimal(1)
    assert gone.duration(minute) == timedelta(minutes=1)
    assert spent_usd([replace(gone, until=None)], minute) == Decimal("0.2")


def test_money_in_json_has_every_digit_and_no_exponent(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing times some hours is "0", not "0E-30"; scripts that read dollars needn't know exponents."""
    nothing = price_usd(Decimal("0.00"), timedelta(seconds=7))
    assert "E" in str(nothing)
    print_json({"spent_usd": nothing, "worst_usd": Decimal("1E+1"), "usd_per_hour": Decimal("1.990")})
    said = json.loads(capsys.readouterr().out)
    assert said == {"spent_usd": "0", "worst_usd": "10", "usd_per_hour": "1.99"}
