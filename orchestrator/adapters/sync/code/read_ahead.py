"""Produces a stream in the background, so that it is ready when the connection to the machine is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from orchestrator.core.errors import KedgeError

# More than a fast connection transfers while the command at the other end starts.
_LIMIT_BYTES = 8 << 20


class StreamPart(NamedTuple):
    """A chunk of a stream.

    Attributes:
        reached: bytes of content in the stream so far, uncompressed.
    """

    data: bytes
    reached: int


class ReadAhead(threading.Thread):
    """Runs an iterator of parts in a thread, up to 8 MiB ahead of its reader."""

    def __init__(self, parts: Iterator[StreamPart]) -> None:
        super().__init__(daemon=True)
        self._parts = parts
        self._made: deque[StreamPart] = deque()
        self._waiting = 0
        self._over = self._unwanted = False
        self._error: KedgeError | None = None
        self._change = threading.Condition()
        self.start()

    def run(self) -> None:
        """Produce parts until there are no more, or the reader has stopped."""
        try:
            for part in self._parts:
                if not self._put(part):
                    return
        except KedgeError as err:
            self._error = err
        finally:
            with self._change:
                self._over = True
                self._change.notify_all()

    def read(self, progress: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the stream, and report the progress.

        Raises:
            KedgeError: the iterator raised it.
        """
        while (part := self._take()) is not None:
            yield part.data
            progress(part.reached)
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Stop, because the rest won't be read."""
        with self._change:
            self._unwanted = True
            self._change.notify_all()
        self.join()

    def _put(self, part: StreamPart) -> bool:
        with self._change:
            self._change.wait_for(lambda: self._waiting < _LIMIT_BYTES or self._unwanted)
            self._made.append(part)
            self._waiting += len(part.data)
            self._change.notify_all()
            return not self._unwanted

    def _take(self) -> StreamPart | None:
        with self._change:
            self._change.wait_for(lambda: self._made or self._over)
            if not self._made:
                return None
            part = self._made.popleft()
            self._waiting -= len(part.data)
            self._change.notify_all()
            return part
