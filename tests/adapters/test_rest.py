"""How long an HTTP API asks its clients to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.adapters.rest.failures import read_pause

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("Mon, 23 Nov 2026 12:00:30 GMT", 30),
        ("Mon, 23 Nov 2026 11:00:00 GMT", 0),
        ("9" * 5000, 3600),
        ("Mon, 23 Nov 9999 12:00:00 GMT", 3600),
        ("Mon, 23 Nov 2026 12:00:30 -0000", 0),
        ("soon", 0),
        ("-1", 0),
        ("", 0),
    ],
)
def test_a_pause_is_read_in_seconds_or_as_a_date_and_is_limited(retry_after: str, seconds: int) -> None:
    """Whatever a proxy writes in Retry-After: an hour at most, and no pause if it is neither."""
    assert read_pause(retry_after, NOW) == timedelta(seconds=seconds)
