"""Polls conditions; tests never sleep for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_PAUSE_SECONDS = 2.0


def wait_until(condition: Callable[[], object], *, seconds: float = 120, pause: float = 0.05) -> None:
    """Return when the condition holds; fail if it doesn't in time.

    A slow check is followed by a longer pause, but by two seconds at most: what the test waits for could come and go.
    For example, a command that asks a booting machine waits for its boot.

    Args:
        condition: what must hold.
        seconds: how long it is waited for.
        pause: the shortest, in seconds; make it longer for a check that costs much.
    """
    give_up_at = time.monotonic() + seconds
    looked_at = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < give_up_at, f"not within {seconds} s"
        time.sleep(min(max(pause, 4 * (now - looked_at)), _LONGEST_PAUSE_SECONDS))
        looked_at = time.monotonic()
