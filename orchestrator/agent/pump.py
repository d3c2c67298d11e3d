"""Carry what the command prints to the log, and to whoever is attached."""

from __future__ import annotations

import contextlib
import os
import queue
import threading

from .runlog import LineSplitter, RunLog

_CHUNK_BYTES = 64 * 1024
_ECHO_CHUNKS = 256


class Echo:
    """Copy bytes to standard output, and drop them when nobody takes them: a terminal may be held."""

    def __init__(self) -> None:
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_ECHO_CHUNKS)
        self._thread = threading.Thread(target=self._work, name="echo", daemon=True)
        self._thread.start()

    def write(self, chunk: bytes) -> None:
        """Pass bytes on without ever waiting."""
        try:
            self._chunks.put_nowait(chunk)
        except queue.Full:
            return

    def _work(self) -> None:
        while (chunk := self._chunks.get()) is not None:
            # The terminal may be gone; the log has it all. Go on taking, so that the queue never fills.
            with contextlib.suppress(OSError):
                while chunk:
                    chunk = chunk[os.write(1, chunk) :]


class Pump:
    """Read one pipe to its end in a thread of its own."""

    def __init__(self, descriptor: int, log: RunLog, echo: Echo) -> None:
        self._descriptor = descriptor
        self._log = log
        self._echo = echo
        self._thread = threading.Thread(target=self._work, name="pump", daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Wait until everything that was printed is in the log."""
        self._thread.join(timeout)

    def _work(self) -> None:
        splitter = LineSplitter()
        with open(self._descriptor, "rb", buffering=0) as pipe:  # noqa: PTH123 - a descriptor, not a path
            while chunk := pipe.read(_CHUNK_BYTES):
                self._echo.write(chunk)
                self._log.lines(splitter.feed(chunk))
        self._log.lines(splitter.finish())
