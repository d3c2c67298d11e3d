"""Faults to order: errors, delays, and answers that are lost after the effect."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

Effect = Literal["error", "delay", "drop", "drop_before"]

# The status with which AWS sends these codes; all others come with 400. fact: aws-capacity-status
_STATUS = {
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientVolumeCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "ServerInternal": 500,
    "Unavailable": 503,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "SlowDown": 503,
}


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the next calls of an action.

    `drop` carries the call out and loses the answer; `drop_before` loses the call. `where` narrows it down by service,
    region, zone, instance_type or market (spot, on-demand); all that are named have to agree. `times` None: always.
    """

    action: str
    effect: Effect = "error"
    code: str = "InternalError"
    message: str = "ordered by the test"
    status: int | None = None
    delay_seconds: float = 0
    times: int | None = 1
    where: Mapping[str, str] = field(default_factory=dict)

    def concerns(self, call: Call) -> bool:
        """Tell whether a call is meant."""
        if self.action not in (call.action, "*") or self.times == 0:
            return False
        return all(_fact(call, name) == wanted for name, wanted in self.where.items())

    def error(self) -> AwsError:
        """Return what is answered."""
        return AwsError(self.code, self.message, self.status or _STATUS.get(self.code, 400))


class FaultBook:
    """The faults that are ordered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def order(self, fault: Fault) -> None:
        """Add a fault; those ordered earlier come first."""
        with self._lock:
            self._faults.append(fault)

    def take(self, call: Call) -> Fault | None:
        """Return what happens to this call, and count it."""
        with self._lock:
            fault = next((fault for fault in self._faults if fault.concerns(call)), None)
            if fault and fault.times:
                fault.times -= 1
            return fault

    def pending(self) -> list[dict[str, Any]]:
        """Return what has not happened yet."""
        with self._lock:
            return [asdict(fault) for fault in self._faults if fault.times != 0]

    def reset(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()


def _fact(call: Call, name: str) -> str | None:
    if name in ("service", "region"):
        return str(getattr(call, name))
    if name == "instance_type":
        return call.params.get("InstanceType")
    if name == "market":
        return "spot" if call.spot else "on-demand"
    if name == "zone":
        return moto_state.zone_of_launch(call)
    raise ValueError(f"no such fact of a call: {name}")
