"""Retries with a time limit. Small, because user-data carries it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")

_FIRST_SECONDS = 0.2
_LONGEST_SECONDS = 5.0


class RetryBudget:
    """Limits the time for retries, with exponential backoff and jitter.

    Args:
        seconds: the limit without progress.
        passes: whether an error is temporary.
        first: the first pause, in seconds.
    """

    def __init__(self, seconds: float, passes: Callable[[Exception], bool], *, first: float = _FIRST_SECONDS) -> None:
        self._seconds = seconds
        self._passes = passes
        self._first = first
        self.renew()

    def renew(self) -> None:
        """Reset the limit after progress."""
        self._give_up = time.monotonic() + self._seconds
        self._pause = self._first

    def wait(self, err: Exception) -> None:
        """Pause before a retry, at least for the error's `after` seconds.

        Raises:
            Exception: `err`, if there is no retry left.
        """
        pause = max(self._pause * random.uniform(0.5, 1), getattr(err, "after", 0.0))  # noqa: S311 - no secret
        if not self._passes(err) or time.monotonic() + pause > self._give_up:
            raise err
        time.sleep(pause)
        self._pause = min(2 * self._pause, _LONGEST_SECONDS)


def retry(call: Callable[[], _Result], budget: RetryBudget) -> _Result:
    """Call a function until it returns.

    Raises:
        OSError: the last error.
    """
    while True:
        try:
            return call()
        except OSError as err:
            budget.wait(err)
