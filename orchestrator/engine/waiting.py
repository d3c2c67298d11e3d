"""Waiting for something to become so: soon after it is asked for, then ever more rarely."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from orchestrator.core.ports import Clock

_Seen = TypeVar("_Seen")

_FIRST = timedelta(milliseconds=100)
_RARELY = timedelta(seconds=3)
_GROWTH = 1.5


def wait_for(look: Callable[[], _Seen | None], at_most: timedelta, clock: Clock) -> _Seen | None:
    """Look until there is something to be seen, and return it; None when time is up."""
    give_up_at = clock.now() + at_most
    pause = _FIRST
    while (seen := look()) is None and clock.now() < give_up_at:
        clock.sleep(pause)
        pause = min(pause * _GROWTH, _RARELY)
    return seen
