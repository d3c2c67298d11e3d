"""Retries: limited in time, with growing pauses, and only for transient failures."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta

import pytest

from orchestrator.adapters.host.retry import poll_until, retry
from tests.support.clocks import FakeClock

SECOND = timedelta(seconds=1)


@dataclass
class Flaky:
    """A call that fails a number of times, then succeeds."""

    failures: int
    error: type[Exception] = ConnectionError
    calls: int = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"attempt {self.calls}")
        return "made"


def is_transient(err: BaseException) -> bool:
    return isinstance(err, ConnectionError)


def test_a_transient_failure_is_retried_with_growing_pauses() -> None:
    """Pauses double up to the longest. Jitter adds at most the length of the first pause."""
    clock, call = FakeClock(), Flaky(6)
    assert retry(call, on=is_transient, within=60 * SECOND, clock=clock, first=SECOND, longest=4 * SECOND) == "made"
    assert call.calls == 7
    least = (1, 2, 4, 4, 4, 4)
    assert all(s <= pause.total_seconds() <= s + 1 for s, pause in zip(least, clock.pauses, strict=True))


def test_a_permanent_failure_is_raised_at_once() -> None:
    """It isn't retried."""
    clock, call = FakeClock(), Flaky(1, ValueError)
    with pytest.raises(ValueError, match="attempt 1"):
        retry(call, on=is_transient, within=60 * SECOND, clock=clock)
    assert (call.calls, clock.pauses) == (1, [])


def test_no_attempt_begins_after_the_time_is_up() -> None:
    """The last error is raised unchanged, within the time limit."""
    clock, call = FakeClock(), Flaky(1000)
    begun = clock.now()
    with pytest.raises(ConnectionError, match=r"attempt \d"):
        retry(call, on=is_transient, within=60 * SECOND, clock=clock, longest=8 * SECOND)
    assert 50 * SECOND < clock.now() - begun <= 60 * SECOND


def test_a_failure_may_set_the_shortest_pause() -> None:
    """A rate limit's Retry-After is the shortest pause. If it is longer than the time left, there is no retry."""
    clock = FakeClock()
    retry(Flaky(1), on=is_transient, within=60 * SECOND, clock=clock, after=lambda _err: 20 * SECOND)
    assert clock.pauses == [20 * SECOND]
    call = Flaky(1)
    with pytest.raises(ConnectionError):
        retry(call, on=is_transient, within=10 * SECOND, clock=clock, after=lambda _err: 20 * SECOND)
    assert call.calls == 1


def test_each_failure_may_have_its_own_time_limit() -> None:
    """One kind of failure may be worth a minute of retries, another none."""
    clock, call = FakeClock(), Flaky(3)
    with pytest.raises(ConnectionError, match="attempt 2"):
        retry(
            call,
            on=is_transient,
            within=lambda err: 60 * SECOND if str(err) == "attempt 1" else timedelta(0),
            clock=clock,
        )


def test_each_failure_is_reported() -> None:
    """Before each pause, with the number of the attempt."""
    numbers: list[int] = []
    retry(Flaky(2), on=is_transient, within=60 * SECOND, clock=FakeClock(), note=numbers.append)
    assert numbers == [1, 2]


def test_polling_returns_at_once_what_is_there() -> None:
    """An empty text is a result; None and False are not."""
    clock = FakeClock()
    assert poll_until(lambda: "", 60 * SECOND, clock) == ""
    assert poll_until(lambda: True, 60 * SECOND, clock)
    assert clock.pauses == []


def test_polling_returns_a_later_result() -> None:
    """The first call isn't repeated before the first pause."""
    clock = FakeClock()
    looks = iter([None, False, "", "never"])
    assert poll_until(lambda: next(looks), 60 * SECOND, clock, first=SECOND) == ""
    assert clock.pauses == [SECOND, 2 * SECOND]


def test_the_last_poll_is_at_the_time_limit() -> None:
    """It is not a whole pause earlier, and never later."""
    clock, looks = FakeClock(), 0

    def look() -> None:
        nonlocal looks
        looks += 1

    assert poll_until(look, 10 * SECOND, clock, first=SECOND, longest=4 * SECOND) is None
    assert clock.pauses == [SECOND, 2 * SECOND, 4 * SECOND, 3 * SECOND]
    assert looks == 5


def test_a_time_limit_of_zero_polls_once() -> None:
    """For a command that doesn't wait for another one."""
    clock, looks = FakeClock(), iter([False])
    assert poll_until(lambda: next(looks), timedelta(0), clock) is None
    assert clock.pauses == []


def test_a_success_at_the_first_try_loads_no_library() -> None:
    """Quick commands take locks with `poll_until`, and have to stay quick."""
    script = """
import sys
from datetime import timedelta
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.retry import poll_until
assert poll_until(lambda: True, timedelta(minutes=1), SystemClock())
assert "tenacity" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
