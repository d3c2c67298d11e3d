"""Polls conditions; tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_PAUSE_SECONDS = 2.0


def wait_until(condition: Callable[[], object], *, seconds: float = 120, pause: float = 0.05) -> None:
    """Return when the condition holds; fail when it doesn't in time.

    A slow look is followed by a longer pause, but never by one in which what it waits for could come and go: a command
    that looks at a booting machine waits for the boot. `pause` is the shortest, in seconds: longer where a look costs
    more than the wait is worth.
    """
    give_up_at = time.monotonic() + seconds
    looked_at = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < give_up_at, f"not within {seconds} s"
        time.sleep(min(max(pause, 2 * (now - looked_at)), _LONGEST_PAUSE_SECONDS))
        looked_at = time.monotonic()
