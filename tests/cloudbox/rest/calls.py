"""Records every call to the box, so that tests can count them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, kw_only=True)
class Seen:
    """A call; `status` is None until it is answered and if the answer was lost, `fault` the ordered effect."""

    method: str
    path: str
    query: Mapping[str, str]
    at: float
    body: Mapping[str, Any]
    status: int | None = None
    fault: str | None = None


class CallBook:
    """The calls in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Seen] = []

    def __iter__(self) -> Iterator[Seen]:
        """Iterate over the calls so far."""
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        """Count the calls so far."""
        return len(self._entries)

    def find(self, method: str | None = None, path: str | None = None) -> list[Seen]:
        """Return the calls of a method, or to a path, or both."""
        return [one for one in self if method in (None, one.method) and path in (None, one.path)]

    def record(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Seen:
        """Add a call; its status and fault are set when it is answered."""
        entry = Seen(method=method, path=path, query=query, body=body, at=time.time())
        with self._lock:
            self._entries.append(entry)
        return entry

    def reset(self) -> None:
        """Forget all calls."""
        with self._lock:
            self._entries.clear()
