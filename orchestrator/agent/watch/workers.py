"""Isolates the parts of the watch: a failure in one is logged once, and doesn't stop the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..base.runlog import RunLog

_Result = TypeVar("_Result")


class Isolated:
    """Calls actions that may fail in any way."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._told: dict[str, str] = {}

    def call(self, name: str, action: Callable[[], _Result]) -> _Result | None:
        """Call an action; return None on any failure, and log equal failures in a row only once."""
        try:
            result = action()
        except Exception as err:  # noqa: BLE001 - nothing may ever hold up the deadline
            told = f"{type(err).__name__}: {err}".replace("\n", ";")
            if self._told.get(name) != told:
                self._told[name] = told
                self._log.remark(f"watch, {name}: {told}")
            return None
        self._told.pop(name, None)
        return result


class Worker(threading.Thread):
    """Repeats a step in a daemon thread."""

    def __init__(self, name: str, step: Callable[[], None], every: float, log: RunLog) -> None:
        super().__init__(name=name, daemon=True)
        self._step = step
        self._every = every
        self._isolated = Isolated(log)

    def run(self) -> None:
        """Make a step, then sleep for the rest of the interval, endlessly."""
        while True:
            began = time.monotonic()
            self._isolated.call(self.name, self._step)
            time.sleep(max(0.01, self._every - (time.monotonic() - began)))
