"""The run's log: append-only, a timestamp on every line, and it never blocks the command.

Writing is best effort: on a full disk, lines are dropped and counted, and the command continues.

A runner that only waits (waiting/slim.py) imports this, so it uses no module that takes memory.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LINE_LIMIT_BYTES = 64 * 1024


class LineSplitter:
    """Splits a stream of bytes into lines; a carriage return ends a line too, because progress bars use it.

    Attributes:
        rest: the begin of the next line.
    """

    def __init__(self, limit: int = LINE_LIMIT_BYTES) -> None:
        self.rest = b""
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return the lines that are complete."""
        text = self.rest + chunk
        # A carriage return at the end of a chunk may be half of a CR LF.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _cut(text[: len(text) - len(held)])
        while len(rest) > self._limit:
            lines.append(rest[: self._limit])
            rest = rest[self._limit :]
        self.rest = rest + held
        return [piece for line in lines for piece in self._bounded(line)]

    def finish(self) -> list[bytes]:
        """Return the rest at the end of the stream."""
        rest, self.rest = self.rest.rstrip(b"\r"), b""
        return [rest] if rest else []

    def _bounded(self, line: bytes) -> list[bytes]:
        starts = range(0, max(1, len(line)), self._limit)
        return [line[start : start + self._limit] for start in starts]


def _cut(text: bytes) -> list[bytes]:
    pieces = []
    for line in text.replace(b"\r\n", b"\n").split(b"\n"):
        *begun, last = line.split(b"\r")
        # A progress bar starts with a carriage return: this doesn't count as an empty line.
        pieces += [*filter(None, begun), last]
    return pieces


class RunLog:
    """Appends lines to a log. Several processes may do so, because each write has whole lines.

    Attributes:
        lost: how many lines were dropped since the last one that was written.
    """

    def __init__(self, find: Callable[[], Path | str]) -> None:
        """Append to the log that `find` returns when something is written: another mode has another log."""
        self._find = find
        self._torn = True
        self.lost = 0

    def remark(self, text: str) -> None:
        """Add a line of the agent's own; line breaks in it are escaped."""
        line = f"[kedge] {text}".replace("\n", "\\n")
        self.lines([line.encode(errors="backslashreplace")])

    def lines(self, lines: list[bytes]) -> None:
        """Add the command's lines."""
        if not lines:
            return
        count = len(lines)
        if self.lost:
            lines = [b"[kedge] %d lines were dropped: the disk was full" % self.lost, *lines]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()).encode()
        content = b"".join(stamp + line + b"\n" for line in lines)
        try:
            self._append(content)
        except OSError:
            self._torn = True
            self.lost += count
        else:
            self.lost = 0

    def _append(self, content: bytes) -> None:
        # Opened for each write, because restored results replace the file once before the first attempt.
        descriptor = open_log(self._find())
        try:
            if self._torn and not _ends_with_newline(descriptor):
                content = b"\n" + content
            written = os.write(descriptor, content)
        finally:
            os.close(descriptor)
        self._torn = False
        if written < len(content):
            raise OSError("short write")


def _ends_with_newline(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def open_log(path: Path | str) -> int:
    """Open a log file for appending; a link that the job has put in its place is removed, never followed.

    Returns:
        A descriptor for reading and appending.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except OSError:
        if not os.path.islink(path):  # noqa: PTH114 - without pathlib
            raise
    os.unlink(path)  # noqa: PTH108
    return os.open(path, flags, 0o644)
