"""The account's rate limits: one request a second, and one launch in 12 seconds.

fact: lambda-rate-limits
"""

from __future__ import annotations

import math
import threading
from email.utils import formatdate

from tests.cloudbox.lambdacloud.account import Settings
from tests.cloudbox.lambdacloud.errors import blocked, envelope
from tests.cloudbox.rest.call import Answer, ApiError, Call
from tests.cloudbox.rest.clock import BoxClock

LAUNCH = ("POST", "/api/v1/instance-operations/launch")


class RateLimit:
    """Refuses requests that come too soon, over all clients and keys of the account; refused ones don't count."""

    def __init__(self, clock: BoxClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}

    def count(self, call: Call, settings: Settings) -> None:
        """Accept a call, and count it.

        Raises:
            ApiError: the call comes too soon; the answer is Cloudflare's, or Lambda's if the settings say so.
        """
        gaps = {"request": settings.seconds_between_requests}
        if (call.method, call.path) == LAUNCH:
            gaps["launch"] = settings.seconds_between_launches
        with self._lock:
            now = self._clock.now()
            wait = max(self._last.get(kind, -math.inf) + gap - now for kind, gap in gaps.items())
            if wait <= 0:
                self._last |= dict.fromkeys(gaps, now)
                return
        raise _refusal(settings, wait, now)

    def reset(self) -> None:
        """Forget all calls."""
        with self._lock:
            self._last.clear()


def _refusal(settings: Settings, wait: float, now: float) -> ApiError:
    """Return the refusal. Whether a real one is JSON or has a Retry-After is unknown. fact: lambda-429-is-no-json."""
    headers = {
        "": {},
        "seconds": {"Retry-After": str(math.ceil(wait))},
        "date": {"Retry-After": formatdate(now + math.ceil(wait), usegmt=True)},
    }[settings.retry_after]
    if settings.rate_refusal == "json":
        body = envelope("global/rate-limited", "Too many requests.")
        return ApiError(Answer(status=429, body=body, headers=headers, is_described=False))
    return blocked(403 if settings.rate_refusal == "cloudflare-403" else 429, 1015, headers)
