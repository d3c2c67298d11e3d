"""Wait for something, but not for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from orchestrator.core.ports import Clock

_POLL = timedelta(milliseconds=10)


def wait_until(is_done: Callable[[], bool], limit: timedelta, clock: Clock) -> bool:
    """Ask again and again; False where the limit passes before the answer is yes."""
    end = clock.now() + limit
    while not is_done():
        if clock.now() > end:
            return False
        clock.sleep(_POLL)
    return True
