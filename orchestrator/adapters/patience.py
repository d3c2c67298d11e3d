"""Bounded waiting at a cloud, through the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 8.0


def ask_again(clock: Clock, patience: timedelta, is_worth_it: Callable[[BaseException], bool]) -> Retrying:
    """Make what calls a function again, with growing pauses, while its error is worth it and patience lasts.

    The last error is raised as it is.
    """
    give_up_at = clock.now() + patience

    def is_over(state: RetryCallState) -> bool:
        return clock.now() + timedelta(seconds=state.upcoming_sleep) > give_up_at

    return Retrying(
        retry=retry_if_exception(is_worth_it),
        wait=wait_exponential(multiplier=_FIRST_SECONDS, max=_LONGEST_SECONDS),
        stop=is_over,
        sleep=lambda seconds: clock.sleep(timedelta(seconds=seconds)),
        reraise=True,
    )


def wait_until(clock: Clock, patience: timedelta, is_so: Callable[[], bool]) -> bool:
    """Look until something is so; False when patience ended before."""
    give_up_at = clock.now() + patience
    pause = timedelta(seconds=_FIRST_SECONDS)
    while not is_so():
        if clock.now() + pause > give_up_at:
            return False
        clock.sleep(pause)
        pause = min(pause * 2, timedelta(seconds=_LONGEST_SECONDS))
    return True
