"""The laptop's only retry loops: `retry` repeats a call that fails, `poll_until` polls until there is a result.

Both have a time limit, back off, and sleep through the clock. tenacity is imported only when something is really
repeated, so that quick commands don't load it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from tenacity import Future, RetryCallState

    from orchestrator.core.ports import Clock

_Made = TypeVar("_Made")
_Seen = TypeVar("_Seen")

_FIRST = timedelta(milliseconds=500)
_LONGEST = timedelta(seconds=8)
_NONE = timedelta(0)


def retry(
    call: Callable[[], _Made],
    *,
    on: Callable[[BaseException], bool],
    within: timedelta | Callable[[BaseException], timedelta],
    clock: Clock,
    first: timedelta = _FIRST,
    longest: timedelta = _LONGEST,
    after: Callable[[BaseException], timedelta] = lambda _err: _NONE,
    note: Callable[[int], None] = lambda _attempt: None,
) -> _Made:
    """Call a function until it succeeds; the last error is raised unchanged.

    Args:
        call: the function.
        on: tells which errors are retried; any other is raised at once.
        within: no attempt starts later than this after the first; it may depend on the error.
        clock: tells the time and sleeps.
        first: the pause after the first failure; it doubles with each further failure.
        longest: the longest pause, except where `after` asks for more. Up to `first` is added as jitter, so that
            clients that failed together don't retry together.
        after: the shortest pause that an error asks for, such as a rate limit's Retry-After.
        note: called before each pause, with the number of the failed attempt.
    """
    from tenacity import Retrying, retry_if_exception, wait_exponential, wait_random  # noqa: PLC0415

    begun_at = clock.now()
    growing = wait_exponential(multiplier=first.total_seconds(), max=longest.total_seconds())
    pause = growing + wait_random(0, first.total_seconds())

    def wait(state: RetryCallState) -> float:
        return max(pause(state), after(_error(state)).total_seconds())

    def is_over(state: RetryCallState) -> bool:
        limit = within(_error(state)) if callable(within) else within
        return clock.now() + timedelta(seconds=state.upcoming_sleep) > begun_at + limit

    attempts = Retrying(
        retry=retry_if_exception(on),
        wait=wait,
        stop=is_over,
        sleep=lambda seconds: clock.sleep(timedelta(seconds=seconds)),
        before_sleep=lambda state: note(state.attempt_number),
        reraise=True,
    )
    return attempts(call)


def poll_until(
    look: Callable[[], _Seen | None],
    within: timedelta,
    clock: Clock,
    *,
    first: timedelta = _FIRST,
    longest: timedelta = _LONGEST,
) -> _Seen | None:
    """Poll a function until it returns a result, and return that; None when time is up.

    None and False mean "not yet". The last poll is at the end of the time, not long before it.

    Args:
        look: the function; its errors are raised.
        within: the time limit; zero polls once.
        clock: tells the time and sleeps.
        first: the first pause; it doubles each time.
        longest: the longest pause.
    """
    give_up_at = clock.now() + within
    seen = look()
    if not _is_nothing(seen) or within <= _NONE:
        return None if _is_nothing(seen) else seen
    from tenacity import Retrying, retry_if_result, wait_exponential  # noqa: PLC0415

    pause = wait_exponential(multiplier=first.total_seconds(), max=longest.total_seconds())

    def wait(state: RetryCallState) -> float:
        return min(pause(state), max((give_up_at - clock.now()).total_seconds(), 0.0))

    looks = chain([seen], iter(look, object()))
    attempts = Retrying(
        retry=retry_if_result(_is_nothing),
        wait=wait,
        stop=lambda _state: clock.now() >= give_up_at,
        sleep=lambda seconds: clock.sleep(timedelta(seconds=seconds)),
        retry_error_callback=lambda _state: None,
    )
    return attempts(lambda: next(looks))


def _error(state: RetryCallState) -> BaseException:
    """Return the last attempt's error; it has one, because only failures are retried."""
    return cast("BaseException", cast("Future", state.outcome).exception())


def _is_nothing(seen: object) -> bool:
    return seen is None or seen is False
