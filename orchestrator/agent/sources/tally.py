"""How far a fetch is, said in the log now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

_EVERY_SECONDS = 10.0


def say(text: str) -> None:
    """Write a line into the run's log, which takes in whatever is printed here."""
    print(f"[kedge] {text}", file=sys.stdout, flush=True)


class Tally:
    """Count bytes and files, and tell at most every ten seconds. For all threads."""

    def __init__(self, name: str, tell: Callable[[str], None] = say, *, every: float = _EVERY_SECONDS) -> None:
        self._name = name
        self._tell = tell
        self._every = every
        self._counting = threading.Lock()
        self._began = self._told = time.monotonic()
        self._moved = 0
        self.bytes = self.files = self._expected_bytes = self._expected_files = 0

    def expect(self, *, size: int, files: int) -> None:
        """Say how much there is in all; what isn't known is 0."""
        self._expected_bytes, self._expected_files = size, files

    def add(self, size: int) -> None:
        """Count bytes that have come."""
        with self._counting:
            self.bytes += size
            self._moved += size
            self._tell_now_and_then()

    def keep(self, size: int) -> None:
        """Count bytes that were here already; a negative number takes back what was counted in vain."""
        with self._counting:
            self.bytes += size

    def add_file(self) -> None:
        """Count a file that is whole."""
        with self._counting:
            self.files += 1
            self._tell_now_and_then()

    def set(self, size: int) -> None:
        """Say how many bytes there are now, where somebody else fetches them."""
        self.add(max(0, size - self.bytes))

    def total(self) -> str:
        """Describe what has come, when all is here."""
        seconds = max(time.monotonic() - self._began, 0.001)
        return (
            f"{self.files:,} files, {_in_megabytes(self.bytes)} in {seconds:.1f} s "
            f"({_in_megabytes(int(self._moved / seconds))}/s)"
        )

    def _tell_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._told < self._every:
            return
        self._told = now
        speed = _in_megabytes(int(self._moved / (now - self._began)))
        self._tell(f"{self._name}: {self._progress()}, {speed}/s")

    def _progress(self) -> str:
        of_bytes = f" of {_in_megabytes(self._expected_bytes)}" if self._expected_bytes else ""
        files = f", {self.files:,} of {self._expected_files:,} files" if self._expected_files > 1 else ""
        return f"{_in_megabytes(self.bytes)}{of_bytes}{files}"


def _in_megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
