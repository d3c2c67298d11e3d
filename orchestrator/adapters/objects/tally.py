"""Progress that several threads make together."""

from __future__ import annotations

import threading

from orchestrator.core.ports import Progress


class StoppedError(Exception):
    """Somebody has ended the whole transfer."""


class Tally:
    """Counts bytes from any thread, and is where they all learn that the transfer is over."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes that are done.

        Raises:
            StoppedError: the transfer is over.
        """
        with self._lock:
            if self._stopped:
                raise StoppedError
            self._done += count
            self._progress(self._done, self._total)

    def stop(self) -> None:
        """Make every thread that still counts stop."""
        with self._lock:
            self._stopped = True
