"""Counts a download's files and bytes, and reports them in the log from time to time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

_EVERY_SECONDS = 10.0


def say(text: str) -> None:
    """Write a line to the run's log, which captures this process's output."""
    print(f"[kedge] {text}", file=sys.stdout, flush=True)


class TransferProgress:
    """Counts bytes and files, and reports at most every ten seconds. Thread-safe."""

    def __init__(self, name: str, tell: Callable[[str], None] = say, *, every: float = _EVERY_SECONDS) -> None:
        self._name = name
        self._tell = tell
        self._every = every
        self._counting = threading.Lock()
        self._began = self._told = time.monotonic()
        self._moved = 0
        self.bytes = self.files = self._expected_bytes = self._expected_files = 0

    def expect(self, *, size: int, files: int) -> None:
        """Set the expected totals; 0 for unknown."""
        self._expected_bytes, self._expected_files = size, files

    def add(self, size: int) -> None:
        """Count bytes that were downloaded."""
        with self._counting:
            self.bytes += size
            self._moved += size
            self._tell_now_and_then()

    def keep(self, size: int) -> None:
        """Count bytes that were already here; a negative number corrects an earlier count."""
        with self._counting:
            self.bytes += size

    def add_file(self) -> None:
        """Count a complete file."""
        with self._counting:
            self.files += 1
            self._tell_now_and_then()

    def set(self, size: int) -> None:
        """Set the number of bytes, where another program downloads them."""
        self.add(max(0, size - self.bytes))

    def total(self) -> str:
        """Describe the finished download."""
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
