"""Every call that the box has seen, so that tests can count them."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.cloudbox.aws.wire.call import Call

_LEFT_OUT = frozenset({"UserData", "Version", "TemplateBody"})
_LONGEST = 300


class CallBook:
    """The calls in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[dict[str, Any]] = []

    def record(self, call: Call) -> dict[str, Any]:
        """Enter a call; the entry's `status`, `fault` and `needs` are filled in when it is answered."""
        entry = {
            "service": call.service,
            "action": call.action,
            "region": call.region,
            "at": time.time(),
            "params": {name: _short(value) for name, value in call.params.items() if name not in _LEFT_OUT},
            "status": None,
            "fault": None,
            "needs": [],
        }
        with self._lock:
            self._entries.append(entry)
        return entry

    def entries(self) -> list[dict[str, Any]]:
        """Return what was recorded."""
        with self._lock:
            return [dict(entry) for entry in self._entries]

    def reset(self) -> None:
        """Forget all calls."""
        with self._lock:
            self._entries.clear()


def _short(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
