"""Faults to order: errors before or after the effect, lost answers, delays, and deletions that didn't happen."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from tests.cloudbox.digitalocean.call import ApiError, Call

Effect = Literal["error", "drop", "delay", "reappear", "errored", "vanish"]

_CODES = {
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    422: "unprocessable_entity",
    429: "too_many_requests",
    503: "service_unavailable",
}


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the next calls of a method to paths of a pattern; `times` None: until cleared."""

    method: str
    path: str
    effect: Effect
    after_effect: bool = False
    status: int = 500
    message: str = "ordered by the test"
    retry_after: int | None = None
    seconds: float = 0
    """What a delay or a lost answer takes of real time, and of the box's until a droplet reappears or is given up."""
    times: int | None = 1

    @property
    def needs_effect(self) -> bool:
        """Whether it can only happen to a call that is carried out."""
        return self.after_effect or self.effect in ("reappear", "errored", "vanish")

    def concerns(self, call: Call) -> bool:
        """Tell whether a call is meant."""
        # The parts of a template, as the description writes it, match one part of a path each.
        exact = re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(self.path)), call.path)
        return self.method in (call.method, "*") and bool(exact or fnmatchcase(call.path, self.path))

    def happen(self) -> bool:
        """Let a call's fault happen, and tell whether its answer is lost.

        Raises:
            ApiError: what is answered instead.
        """
        if self.effect in ("delay", "drop"):
            time.sleep(self.seconds)
        if self.effect == "error":
            raise self._error()
        return self.effect == "drop"

    def _error(self) -> ApiError:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return ApiError(self.status, _CODES.get(self.status, "server_error"), self.message, headers)


class FaultBook:
    """The faults that are ordered; those ordered earlier come first.

    A path is exact, a template of the description (`/v2/droplets/{droplet_id}`) or has wildcards (`/v2/*`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def fail_next(
        self,
        method: str,
        path: str,
        *,
        status: int = 500,
        after_effect: bool = False,
        times: int | None = 1,
        message: str = "ordered by the test",
        retry_after: int | None = None,
    ) -> None:
        """Answer the next calls with an error, without carrying them out or (`after_effect`) when that is done."""
        fault = Fault(method=method, path=path, effect="error", status=status, after_effect=after_effect, times=times)
        fault.message, fault.retry_after = message, retry_after
        self.order(fault)

    def drop_next(
        self, method: str, path: str, *, after_effect: bool = True, seconds: float = 0, times: int | None = 1
    ) -> None:
        """Break the connection instead of answering, after some seconds: after the call was carried out, or before."""
        drop = Fault(method=method, path=path, effect="drop", after_effect=after_effect, seconds=seconds, times=times)
        self.order(drop)

    def delay_next(
        self, method: str, path: str, seconds: float, *, after_effect: bool = False, times: int | None = 1
    ) -> None:
        """Let the next calls wait, in real seconds, before they are carried out or between that and the answer."""
        delay = Fault(method=method, path=path, effect="delay", after_effect=after_effect, seconds=seconds, times=times)
        self.order(delay)

    def refuse_rate(self, *, times: int | None = 1, retry_after: int | None = None) -> None:
        """Answer the next calls, whatever they are, as if there had been too many."""
        message = "API rate limit exceeded."
        self.fail_next("*", "*", status=429, times=times, message=message, retry_after=retry_after)

    def reappear_next(self, seconds: float = 0, *, times: int | None = 1) -> None:
        """Let the next deletions of droplets seem done for some seconds of the box's time, and not be."""
        template = "/v2/droplets/{droplet_id}"
        self.order(Fault(method="DELETE", path=template, effect="reappear", seconds=seconds, times=times))

    def give_up_next(self, seconds: float = 0, *, vanishes: bool = False, times: int | None = 1) -> None:
        """Let the actions of the next creations end `errored` after some seconds of the box's time.

        Their droplets stay `new` and bill, or vanish then.
        """
        effect: Effect = "vanish" if vanishes else "errored"
        self.order(Fault(method="POST", path="/v2/droplets", effect=effect, seconds=seconds, times=times))

    def order(self, fault: Fault) -> None:
        """Add a fault."""
        with self._lock:
            self._faults.append(fault)

    def take(self, call: Call) -> Fault | None:
        """Return what happens to this call, and count it."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(call)), None)
            if fault and fault.times is not None:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault

    def put_back(self, fault: Fault) -> None:
        """Let a fault that was taken happen to the next call that it concerns."""
        with self._lock:
            if fault.times is not None:
                fault.times += 1
            if fault not in self._faults:
                self._faults.insert(0, fault)

    def pending(self) -> list[Fault]:
        """Return what has not happened yet."""
        with self._lock:
            return list(self._faults)

    def reset(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    clear = reset
