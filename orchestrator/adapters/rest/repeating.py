"""Retries of requests to HTTP APIs, for clients with and without an SDK."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.rest.failures import BusyError, UnclearError

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

_Answer = TypeVar("_Answer")

_BUSY_FOR = timedelta(seconds=150)
"""Rate limits are per minute; a wait may span two minutes."""
_UNCLEAR_FOR = timedelta(seconds=30)
_LONGEST_PAUSE = timedelta(seconds=16)


def repeat(send: Callable[[], _Answer], clock: Clock, *, unclear: bool) -> _Answer:
    """Send a request, and retry it while the API is busy; the last error is raised.

    Args:
        send: sends it once.
        clock: tells the time, and sleeps between attempts.
        unclear: retry after an unclear answer too, because the request is idempotent.

    Raises:
        ApiError: the API refuses, or doesn't answer within its time.
    """
    return retry(
        send,
        on=lambda err: isinstance(err, BusyError) or (unclear and isinstance(err, UnclearError)),
        within=lambda err: _BUSY_FOR if isinstance(err, BusyError) else _UNCLEAR_FOR,
        clock=clock,
        longest=_LONGEST_PAUSE,
        after=lambda err: err.retry_after if isinstance(err, BusyError) else timedelta(0),
    )
