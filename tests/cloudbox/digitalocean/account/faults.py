"""Faults to order at DigitalOcean, beside those of every box: deletions and creations that only seem to be done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from tests.cloudbox.rest import faults
from tests.cloudbox.rest.call import Answer

_CODES = {
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    422: "unprocessable_entity",
    429: "too_many_requests",
    503: "service_unavailable",
}


@dataclass(slots=True, kw_only=True)
class Fault(faults.Fault):
    """A fault; `seconds` are of the box's time until a droplet reappears or is given up.

    More effects: reappear, errored, vanish.
    """

    own_effects: ClassVar[frozenset[str]] = frozenset({"reappear", "errored", "vanish"})
    retry_after: int | None = None

    def answer(self) -> Answer:
        """Return what an error answers."""
        # Named by its class: a dataclass with slots is made anew, and `super()` would look for the one before.
        answer = faults.Fault.answer(self)
        after = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return replace(answer, headers={**answer.headers, **after})

    def describe(self) -> dict[str, Any]:
        """Return an error's body."""
        return {"id": _CODES.get(self.status, "server_error"), "message": self.message}


class FaultBook(faults.FaultBook[Fault]):
    """The faults that are ordered."""

    def __init__(self) -> None:
        super().__init__(Fault)

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
        effect: Literal["vanish", "errored"] = "vanish" if vanishes else "errored"
        self.order(Fault(method="POST", path="/v2/droplets", effect=effect, seconds=seconds, times=times))
