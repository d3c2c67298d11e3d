"""Copies the command's output to the log, and to an attached terminal."""

from __future__ import annotations

import os

from ..base.runlog import LineSplitter, RunLog

_CHUNK_BYTES = 64 * 1024
_ECHO_BYTES = 256 * _CHUNK_BYTES
_STDOUT = 1


class Echo:
    """Copies bytes to standard output, and drops them if nobody reads: a terminal may be paused."""

    def __init__(self) -> None:
        self._pending = b""
        self._descriptor = _open_unblocked()

    @property
    def writing(self) -> list[int]:
        """The descriptor to wait for, if there is something to write."""
        return [self._descriptor] if self._pending else []

    def write(self, chunk: bytes) -> None:
        """Write what fits without blocking, and keep the rest for `flush`."""
        if len(self._pending) + len(chunk) <= _ECHO_BYTES:
            self._pending += chunk
            self.flush()

    def flush(self) -> None:
        """Write what fits."""
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._descriptor, self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            # The terminal may be gone; the log has everything.
            self._pending = b""


def _open_unblocked() -> int:
    """Open standard output anew if it is a terminal, whose other users may want to be blocked."""
    try:
        return os.open(os.ttyname(_STDOUT), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    try:
        os.set_blocking(_STDOUT, False)
    except OSError:
        pass
    return _STDOUT


class Pump:
    """Copies one pipe."""

    def __init__(self, descriptor: int, log: RunLog, echo: Echo, begun: bytes = b"") -> None:
        """Copy from a pipe; `begun` is the begin of its next line, which was read already."""
        self.descriptor = descriptor
        self._log = log
        self._echo = echo
        self._splitter = LineSplitter()
        self._log.lines(self._splitter.feed(begun))
        self.is_open = True

    @property
    def begun(self) -> bytes:
        """The begin of the line that isn't complete yet."""
        return self._splitter.rest

    @property
    def is_whole(self) -> bool:
        """Whether the log and the terminal have everything that was read, except the line that isn't complete."""
        return self.is_open and not self._log.lost and not self._echo.writing

    @property
    def reading(self) -> list[int]:
        """The descriptor to wait for, if there may be more to read."""
        return [self.descriptor] if self.is_open else []

    @property
    def writing(self) -> list[int]:
        """The descriptor to wait for, if there is something to write."""
        return self._echo.writing

    def copy(self, ready: object) -> None:
        """Copy what has come; `ready` are the descriptors that can be read or written."""
        self._echo.flush()
        if not self.is_open or self.descriptor not in ready:  # type: ignore[operator]
            return
        chunk = os.read(self.descriptor, _CHUNK_BYTES)
        self._echo.write(chunk)
        self._log.lines(self._splitter.feed(chunk))
        if not chunk:
            self.close()

    def close(self) -> None:
        """Read no more, and write the rest to the log."""
        if self.is_open:
            self.is_open = False
            os.close(self.descriptor)
            self._log.lines(self._splitter.finish())
