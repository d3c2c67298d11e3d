"""Makes a stream in the background, so that it is ready when the way to the machine is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from orchestrator.core.errors import KedgeError

# More than goes through a fast line while a command starts at the other end.
_LIMIT_BYTES = 8 << 20


class Part(NamedTuple):
    """A piece of a stream.

    Attributes:
        reached: how many bytes of content are in the stream up to here, uncompressed.
    """

    data: bytes
    reached: int


class Ahead(threading.Thread):
    """Runs an iterator of parts up to 8 MiB ahead of whoever reads it."""

    def __init__(self, parts: Iterator[Part]) -> None:
        super().__init__(daemon=True)
        self._parts = parts
        self._made: deque[Part] = deque()
        self._waiting = 0
        self._over = self._unwanted = False
        self._error: KedgeError | None = None
        self._change = threading.Condition()
        self.start()

    def run(self) -> None:
        """Make parts until there are no more, or nobody wants them."""
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
        """Yield the stream, and tell how far it has been taken.

        Raises:
            KedgeError: what the iterator raised.
        """
        while (part := self._take()) is not None:
            yield part.data
            progress(part.reached)
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Stop: nobody reads any further."""
        with self._change:
            self._unwanted = True
            self._change.notify_all()
        self.join()

    def _put(self, part: Part) -> bool:
        with self._change:
            self._change.wait_for(lambda: self._waiting < _LIMIT_BYTES or self._unwanted)
            self._made.append(part)
            self._waiting += len(part.data)
            self._change.notify_all()
            return not self._unwanted

    def _take(self) -> Part | None:
        with self._change:
            self._change.wait_for(lambda: self._made or self._over)
            if not self._made:
                return None
            part = self._made.popleft()
            self._waiting -= len(part.data)
            self._change.notify_all()
            return part
