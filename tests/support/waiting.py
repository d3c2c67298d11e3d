"""Polls conditions; tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    """Return when the condition holds; fail if it doesn't in time. A slow check is followed by a longer pause."""
    give_up_at = time.monotonic() + seconds
    looked_at = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < give_up_at, f"not within {seconds} s"
        time.sleep(max(0.05, 2 * (now - looked_at)))
        looked_at = time.monotonic()
