"""The two ways to a terminal: standard output and error, which clean all that is printed, and rich's console.

Whoever prints doesn't have to think of it: a task, invoke, a warning, a traceback. `ssh`, `exec` and `attach` hand the
user's terminal to OpenSSH, and go neither way.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

from orchestrator.core.printable import clean


class CleanStream:
    """A stream that passes on what is text; `draw` is for kedge's own colours and cursor."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw
        if isinstance(raw, io.TextIOWrapper):
            # A terminal's encoding may lack a letter: that is no reason to end in the middle of a sentence.
            raw.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write what of the text is text."""
        self.raw.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def draw(self, codes: str) -> None:
        """Write what a terminal shall obey: never a text that others wrote."""
        self.raw.write(codes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def clean_streams() -> None:
    """Have all that is printed from now on cleaned."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, CleanStream):
            cleaned = CleanStream(stream)
            setattr(sys, name, cleaned)
            # invoke's own log, where it was asked for, is open by now.
            for handler in logging.root.handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(cleaned)


def draw(codes: str, *, stderr: bool = False) -> None:
    """Draw on standard output or error, as it stands now."""
    stream = raw_stream(stderr=stderr)
    stream.write(codes)
    stream.flush()


def raw_stream(*, stderr: bool = False) -> TextIO:
    """Return a standard stream as it was: for who cleans by himself."""
    stream: Any = sys.stderr if stderr else sys.stdout
    # While rich draws a live line, it stands before the streams.
    stream = getattr(stream, "rich_proxied_file", stream)
    return cast("TextIO", stream.raw if isinstance(stream, CleanStream) else stream)
