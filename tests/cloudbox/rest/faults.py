"""Faults that tests order: errors before or after the effect, lost answers and delays."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Generic, TypeVar

from tests.cloudbox.rest.call import Answer, ApiError, Call

_EFFECTS = frozenset({"error", "drop", "delay"})


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the next calls with a method and a path pattern; `times` None means until cleared.

    Every box has the effects error, drop and delay. A box may have more effects, on calls that are carried out.
    """

    method: str
    path: str
    effect: str
    after_effect: bool = False
    status: int = 500
    message: str = "ordered by the test"
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    """The body of an error that doesn't have the API's format."""
    seconds: float = 0
    """How long a delay or a lost answer takes, in real seconds; other effects may use it differently."""
    times: int | None = 1
    own_effects: ClassVar[frozenset[str]] = frozenset()
    """The effects of this box besides those of every box."""

    def __post_init__(self) -> None:
        if self.effect not in _EFFECTS | self.own_effects:
            raise ValueError(f"no such effect: {self.effect}")

    @property
    def needs_effect(self) -> bool:
        """Whether it needs a call that is carried out."""
        return self.after_effect or self.effect in self.own_effects

    def concerns(self, call: Call) -> bool:
        """Tell whether the fault applies to a call."""
        # Each parameter of a template, as in the description, matches one part of a path.
        exact = re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(self.path)), call.path)
        return self.method in (call.method, "*") and bool(exact or fnmatchcase(call.path, self.path))

    def happen(self) -> bool:
        """Carry out the fault on a call; return whether the call's answer is lost.

        Raises:
            ApiError: the answer to send instead.
        """
        if self.effect in ("delay", "drop"):
            time.sleep(self.seconds)
        if self.effect == "error":
            raise ApiError(self.answer())
        return self.effect == "drop"

    def answer(self) -> Answer:
        """Return the answer of an error."""
        body = None if self.text is not None else self.describe()
        return Answer(status=self.status, body=body, text=self.text, headers=self.headers, is_described=False)

    def describe(self) -> dict[str, Any]:
        """Return an error's body in the API's format."""
        raise NotImplementedError


F = TypeVar("F", bound=Fault)


class FaultBook(Generic[F]):
    """The ordered faults; the first that applies to a call happens.

    A path is exact, a template of the description (`/v2/droplets/{droplet_id}`) or has wildcards (`/v2/*`).
    """

    def __init__(self, kind: type[F]) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._faults: list[F] = []

    def fail_next(self, method: str, path: str, **how: Any) -> None:
        """Answer the next calls with an error, without carrying them out or, with `after_effect`, after that."""
        self.order(self._kind(method=method, path=path, effect="error", **how))

    def drop_next(
        self, method: str, path: str, *, after_effect: bool = True, seconds: float = 0, times: int | None = 1
    ) -> None:
        """Close the connection instead of answering, after some seconds: after the call was carried out, or before."""
        how: dict[str, Any] = {"after_effect": after_effect, "seconds": seconds, "times": times}
        self.order(self._kind(method=method, path=path, effect="drop", **how))

    def delay_next(
        self, method: str, path: str, seconds: float, *, after_effect: bool = False, times: int | None = 1
    ) -> None:
        """Delay the next calls, in real seconds: before they are carried out, or before the answer."""
        how: dict[str, Any] = {"after_effect": after_effect, "seconds": seconds, "times": times}
        self.order(self._kind(method=method, path=path, effect="delay", **how))

    def order(self, fault: F) -> None:
        """Add a fault."""
        with self._lock:
            self._faults.append(fault)

    def order_fields(self, fields: dict[str, Any]) -> None:
        """Add the fault that these fields describe."""
        self.order(self._kind(**fields))

    def take(self, call: Call) -> F | None:
        """Return the fault for this call, and count it down."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(call)), None)
            if fault and fault.times is not None:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault

    def put_back(self, fault: F) -> None:
        """Undo `take`: the fault happens to the next call that it applies to."""
        with self._lock:
            if fault.times is not None:
                fault.times += 1
            if fault not in self._faults:
                self._faults.insert(0, fault)

    def pending(self) -> list[F]:
        """Return the faults that have not happened yet."""
        with self._lock:
            return list(self._faults)

    def reset(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    clear = reset
