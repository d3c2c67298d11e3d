"""Faults to order: errors before or after the effect, lost answers and delays."""

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
    """What happens to the next calls of a method to paths of a pattern; `times` None: until cleared.

    The effects error, drop and delay are every box's; a box has more of its own, which happen to calls that are
    carried out.
    """

    method: str
    path: str
    effect: str
    after_effect: bool = False
    status: int = 500
    message: str = "ordered by the test"
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    """Of an error that isn't in the API's own shape."""
    seconds: float = 0
    """What a delay or a lost answer takes of real time; other effects say what they do with it."""
    times: int | None = 1
    own_effects: ClassVar[frozenset[str]] = frozenset()
    """Of the box, beside those of every box."""

    def __post_init__(self) -> None:
        if self.effect not in _EFFECTS | self.own_effects:
            raise ValueError(f"no such effect: {self.effect}")

    @property
    def needs_effect(self) -> bool:
        """Whether it can only happen to a call that is carried out."""
        return self.after_effect or self.effect in self.own_effects

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
            raise ApiError(self.answer())
        return self.effect == "drop"

    def answer(self) -> Answer:
        """Return what an error answers."""
        body = None if self.text is not None else self.describe()
        return Answer(status=self.status, body=body, text=self.text, headers=self.headers, is_described=False)

    def describe(self) -> dict[str, Any]:
        """Return an error's body in the API's own shape."""
        raise NotImplementedError


F = TypeVar("F", bound=Fault)


class FaultBook(Generic[F]):
    """The faults that are ordered; those ordered earlier come first.

    A path is exact, a template of the description (`/v2/droplets/{droplet_id}`) or has wildcards (`/v2/*`).
    """

    def __init__(self, kind: type[F]) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._faults: list[F] = []

    def fail_next(self, method: str, path: str, **how: Any) -> None:
        """Answer the next calls with an error, without carrying them out or (`after_effect`) when that is done."""
        self.order(self._kind(method=method, path=path, effect="error", **how))

    def drop_next(
        self, method: str, path: str, *, after_effect: bool = True, seconds: float = 0, times: int | None = 1
    ) -> None:
        """Break the connection instead of answering, after some seconds: after the call was carried out, or before."""
        how: dict[str, Any] = {"after_effect": after_effect, "seconds": seconds, "times": times}
        self.order(self._kind(method=method, path=path, effect="drop", **how))

    def delay_next(
        self, method: str, path: str, seconds: float, *, after_effect: bool = False, times: int | None = 1
    ) -> None:
        """Let the next calls wait, in real seconds, before they are carried out or between that and the answer."""
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
        """Return what happens to this call, and count it."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(call)), None)
            if fault and fault.times is not None:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
            return fault

    def put_back(self, fault: F) -> None:
        """Let a fault that was taken happen to the next call that it concerns."""
        with self._lock:
            if fault.times is not None:
                fault.times += 1
            if fault not in self._faults:
                self._faults.insert(0, fault)

    def pending(self) -> list[F]:
        """Return what has not happened yet."""
        with self._lock:
            return list(self._faults)

    def reset(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    clear = reset
