"""Parses and formats durations, money and sizes. Money is Decimal: 2.5 h at $1.99 is $4.98, not $4.97."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from orchestrator.core.errors import BadRequestError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")
_CENT = Decimal("0.01")
_MOST_BYTES = 10**30
_BYTES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(b|kb|mb|gb|tb)?")
_BYTES_OF = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `30m`, `1h30m` or `2d`.

    Raises:
        BadRequestError: not a positive duration with a unit.
    """
    compact = text.strip().replace(" ", "")
    if not _DURATION.fullmatch(compact):
        raise BadRequestError(
            f"{text!r} is not a duration",
            why="a duration is a number with a unit: s, m, h or d",
            fix="write for example 90s, 30m, 1h30m or 2d",
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(compact))
    if seconds <= 0:
        raise BadRequestError(f"the duration {text!r} is not positive", fix="write for example 30m or 2h")
    return timedelta(seconds=seconds)


def is_duration(text: str) -> bool:
    """Tell whether `parse_duration` reads a text as a duration."""
    return bool(_DURATION.fullmatch(text.strip().replace(" ", "")))


def format_duration(duration: timedelta) -> str:
    """Format the two largest units that aren't zero: `2h 5m`, `1d`, `45s`."""
    left = max(0, round(duration.total_seconds()))
    parts = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, _SECONDS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2]) or "0s"


def parse_usd(text: str) -> Decimal:
    """Parse an amount of US dollars: `10`, `$10` or `0.50`.

    Raises:
        BadRequestError: not a finite amount of zero or more.
    """
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise BadRequestError(
            f"{text!r} is not an amount of dollars", fix="write for example 10, $10 or 0.50 (US dollars)"
        )
    return amount


def cents(amount: Decimal) -> Decimal:
    """Round to whole cents, half a cent up, so that comparisons use the amounts that are shown."""
    return amount.quantize(_CENT, rounding=ROUND_HALF_UP)


def format_usd(amount: Decimal) -> str:
    """Format dollars and cents, half a cent rounded up; an amount that rounds to zero but isn't, as `<$0.01`."""
    return "<$0.01" if amount > 0 and not cents(amount) else f"${cents(amount):,}"


def format_bytes(count: int) -> str:
    """Format a size in the decimal units in which networks and disks are sold."""
    # A machine may claim more than a float can hold.
    size = float(min(count, _MOST_BYTES))
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def parse_bytes(text: str) -> int:
    """Parse `0`, `500MB`, `2 GB` or `1.5TB`, in decimal units.

    Raises:
        BadRequestError: not a number with a unit.
    """
    match = _BYTES.fullmatch(text.strip().lower())
    if match is None or not (match[2] or not float(match[1])):
        raise BadRequestError(
            f"{text[:40]!r} is not a size",
            why="a size is a number with a unit: kB, MB, GB or TB",
            fix="write for example 500MB or 2GB, or 0",
        )
    return round(float(match[1]) * _BYTES_OF[match[2] or "b"])


def hours(duration: timedelta) -> Decimal:
    """Convert a duration to an exact number of hours."""
    return Decimal(round(duration.total_seconds() * 1000)) / 3_600_000
