"""Copies the command's output to the log, and to an attached terminal."""

from __future__ import annotations

import contextlib
import os
import queue
import threading

from ..base.runlog import LineSplitter, RunLog

_CHUNK_BYTES = 64 * 1024
_ECHO_CHUNKS = 256


class Echo:
    """Copies bytes to standard output, and drops them if nobody reads: a terminal may be paused."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_ECHO_CHUNKS)
        self._thread = threading.Thread(target=self._work, name="echo", daemon=True)
        self._thread.start()

    def write(self, chunk: bytes) -> None:
        """Queue bytes without blocking."""
        try:
            self._chunks.put_nowait(chunk)
        except queue.Full:
            return

    def _work(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            # The terminal may be gone; the log has everything. Keep reading, so that the queue never fills.
            with contextlib.suppress(OSError):
                while chunk:
                    chunk = chunk[os.write(1, chunk) :]


class Pump:
    """Reads one pipe to its end, in a thread of its own."""

    def __init__(self, descriptor: int, log: RunLog, echo: Echo) -> None:
        self._descriptor = descriptor
        self._log = log
        self._echo = echo
        self._thread = threading.Thread(target=self._work, name="pump", daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Wait until all output is in the log."""
        self._thread.join(timeout)

    def _work(self) -> None:
        splitter = LineSplitter()
        with open(self._descriptor, "rb", buffering=0) as pipe:  # noqa: PTH123 - a descriptor, not a path
            while chunk := pipe.read(_CHUNK_BYTES):
                self._echo.write(chunk)
                self._log.lines(splitter.feed(chunk))
        self._log.lines(splitter.finish())
