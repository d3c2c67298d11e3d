"""Waits for signals: a stop request or the death of a child wakes the runner at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """Collects stop requests; `wait` returns early when one comes or a child dies."""

    def __init__(self) -> None:
        self.stop: str = ""
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    def install(self) -> None:
        """Install handlers for SIGTERM, SIGINT, SIGHUP (unless nohup ignores it) and SIGCHLD."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in _STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_stop)

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until a signal comes."""
        select.select([self._read_end], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, 4096)

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self.stop = self.stop or signal.Signals(number).name
