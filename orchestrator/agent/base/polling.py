"""Polls a condition, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Seen = TypeVar("_Seen")


def poll_until(look: Callable[[], _Seen | None], *, seconds: float, every: float = 0.05) -> _Seen | None:
    """Poll until `look` returns something, and return that; None if time runs out. None and False mean: not yet."""
    give_up = time.monotonic() + seconds
    while (seen := look()) is None or seen is False:
        if time.monotonic() >= give_up:
            return None
        time.sleep(every)
    return seen
