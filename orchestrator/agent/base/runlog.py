"""The run's log: append-only, a timestamp on every line, and it never blocks the command.

Writing is best effort: on a full disk, lines are dropped and counted, and the command continues.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from .files import open_log

LINE_LIMIT_BYTES = 64 * 1024
_ENDS = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Splits a stream of bytes into lines; a carriage return ends a line too, because progress bars use it."""

    def __init__(self, limit: int = LINE_LIMIT_BYTES) -> None:
        self._rest = b""
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add bytes, and return the lines that are complete."""
        text = self._rest + chunk
        # A carriage return at the end of a chunk may be half of a CR LF.
        held = b"\r" if text.endswith(b"\r") else b""
        *lines, rest = _cut(text[: len(text) - len(held)])
        while len(rest) > self._limit:
            lines.append(rest[: self._limit])
            rest = rest[self._limit :]
        self._rest = rest + held
        return [piece for line in lines for piece in self._bounded(line)]

    def finish(self) -> list[bytes]:
        """Return the rest at the end of the stream."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest] if rest else []

    def _bounded(self, line: bytes) -> list[bytes]:
        starts = range(0, max(1, len(line)), self._limit)
        return [line[start : start + self._limit] for start in starts]


def _cut(text: bytes) -> list[bytes]:
    pieces = []
    start = 0
    for end in _ENDS.finditer(text):
        # A progress bar starts with a carriage return: this doesn't count as an empty line.
        if end.start() > start or end.group() != b"\r":
            pieces.append(text[start : end.start()])
        start = end.end()
    return [*pieces, text[start:]]


class RunLog:
    """Appends lines to the log. Several processes may do so, because each write has whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._torn = True
        self._lost = 0

    def remark(self, text: str) -> None:
        """Add a line of the agent's own; line breaks in it are escaped."""
        line = f"[kedge] {text}".replace("\n", "\\n")
        self.lines([line.encode(errors="backslashreplace")])

    def lines(self, lines: list[bytes]) -> None:
        """Add the command's lines."""
        if not lines:
            return
        count = len(lines)
        if self._lost:
            lines = [b"[kedge] %d lines were dropped: the disk was full" % self._lost, *lines]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()).encode()
        content = b"".join(stamp + line + b"\n" for line in lines)
        try:
            self._append(content)
        except OSError:
            self._torn = True
            self._lost += count
        else:
            self._lost = 0

    def _append(self, content: bytes) -> None:
        # Opened for each write, because restored results replace the file once before the first attempt.
        descriptor = open_log(self._path)
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
