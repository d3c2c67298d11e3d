"""Waits for a script's first process while it copies its output."""

from __future__ import annotations

import os
import time

from .pump import Pump
from .signals import Signals

_LOOK_SECONDS = 30.0
"""How long to wait for a signal or for output. Neither can be missed; this is only a precaution."""


class Leader:
    """A script's first process, which leads its session, and its output.

    Attributes:
        pid: its process id, and that of its process group.
        pump: copies the output.
        exit_code: 128 + n for signal n; None until it has ended.
    """

    def __init__(self, pid: int, pump: Pump) -> None:
        self.pid = pid
        self.pump = pump
        self.exit_code: int | None = None

    def wait(self, signals: Signals, seconds: float | None = None) -> bool:
        """Wait until it ends, the command has to end, or for this time; False if only the time is over."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.reap() and self.exit_code is None and not signals.is_called:
            left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - time.monotonic())
            if left <= 0:
                return False
            self.look(signals, left)
        return True

    def look(self, signals: Signals, seconds: float) -> None:
        """Wait once for a signal or for output, and copy the output."""
        self.pump.copy(signals.wait(seconds, self.pump.reading, self.pump.writing))

    def reap(self) -> bool:
        """Reap dead children, adopted ones too; False if there are no children left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit_code = code if code >= 0 else 128 - code
