"""Waits on conditions, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Return when the condition holds; fail when it doesn't in time."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"not within {seconds} s"
        time.sleep(0.05)
