"""Durations, money and sizes, as people write and read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.drawing.render import print_json
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.cost import Rental, price_usd, spent_usd
from orchestrator.core.values.units import (
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
def test_a_malformed_duration_is_refused_with_an_example(text: str) -> None:
    """A bare number could be seconds or hours."""
    with pytest.raises(BadRequestError, match="duration") as caught:
        parse_duration(text)
    assert "30m" in caught.value.fix


@given(st.integers(min_value=1, max_value=10**7))
def test_a_printed_duration_parses_back_to_at_most_one_unit_less(seconds: int) -> None:
    """Two units are printed, and the rest is cut off."""
    printed = parse_duration(format_duration(timedelta(seconds=seconds)))
    assert timedelta(0) <= timedelta(seconds=seconds) - printed < timedelta(hours=1)


def test_half_a_cent_is_rounded_up() -> None:
    """2.5 h at $1.99 is $4.975: the W0 script printed $4.97."""
    assert format_usd(price_usd(Decimal("1.99"), timedelta(hours=2.5))) == "$4.98"


@pytest.mark.parametrize("text", ["ten", "-1", "NaN", "Infinity", "", "1,5"])
def test_malformed_and_negative_amounts_are_refused(text: str) -> None:
    """No budget is negative or infinite."""
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
def test_a_malformed_size_is_refused(text: str) -> None:
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


@pytest.mark.parametrize(
    ("parse", "text", "error"),
    [
        (
            parse_duration,
            "90",
            "'90' is not a duration\n"
            "  why: a duration is a number with a unit: s, m, h or d\n"
            "  fix: write for example 90s, 30m, 1h30m or 2d",
        ),
        (parse_duration, "0s", "the duration '0s' is not positive\n  fix: write for example 30m or 2h"),
        (
            parse_usd,
            "ten",
            "'ten' is not an amount of dollars\n  fix: write for example 10, $10 or 0.50 (US dollars)",
        ),
        (
            parse_bytes,
            "9" * 41,
            f"'{'9' * 40}' is not a size\n"
            "  why: a size is a number with a unit: kB, MB, GB or TB\n"
            "  fix: write for example 500MB or 2GB, or 0",
        ),
    ],
)
def test_a_refusal_shows_what_was_written_and_what_to_write(
    parse: Callable[[str], object], text: str, error: str
) -> None:
    """People read it in a terminal: the whole of it."""
    with pytest.raises(BadRequestError) as caught:
        parse(text)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "$0.00"), ("0.004", "<$0.01"), ("0.005", "$0.01"), ("0.5", "$0.50"), ("1234.5", "$1,234.50")],
)
def test_money_is_printed_in_whole_cents(amount: str, text: str) -> None:
    """Half a cent counts up, and less than that isn't nothing."""
    assert format_usd(parse_usd(amount)) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (99, "99 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_900, "99.9 kB"),
        (100_000, "100 kB"),
        (100_400, "100 kB"),
        (2_000_000, "2.0 MB"),
        (3_000_000_000, "3.0 GB"),
        (4_000_000_000_000, "4.0 TB"),
        (5_000_000_000_000_000, "5000.0 TB"),
    ],
)
def test_sizes_have_decimal_units_and_three_digits(count: int, text: str) -> None:
    """As networks and disks are sold."""
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (-5, "0s"), (0.6, "1s"), (3661, "1h 1m"), (90_061, "1d 1h"), (60, "1m")]
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    """The two largest that say something; what is over already is nothing."""
    assert format_duration(timedelta(seconds=seconds)) == text
