"""Standard output and error as streams that clean all that is printed, with a way around for rich's console.

Code that prints needs no change for it: tasks, invoke, warnings, tracebacks. `ssh`, `exec` and `attach` hand the user's
terminal over to OpenSSH, and bypass these streams.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

from orchestrator.core.values.printable import clean


class CleanStream:
    """A stream that removes control characters; `draw` is for kedge's own colours and cursor movements."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw = raw
        if isinstance(raw, io.TextIOWrapper):
            # A terminal's encoding may lack a letter; that must not fail in the middle of a sentence.
            raw.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write the cleaned text."""
        self.raw.write(clean(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def draw(self, codes: str) -> None:
        """Write control sequences unchanged; never pass a text that others wrote."""
        self.raw.write(codes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def clean_streams() -> None:
    """Clean everything that is printed from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, CleanStream):
            cleaned = CleanStream(stream)
            setattr(sys, name, cleaned)
            # invoke's own log, if enabled, has its stream by now.
            for handler in logging.root.handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(cleaned)


def draw(codes: str, *, stderr: bool = False) -> None:
    """Draw on the present standard output or error."""
    stream = raw_stream(stderr=stderr)
    stream.write(codes)
    stream.flush()


def raw_stream(*, stderr: bool = False) -> TextIO:
    """Return the original standard stream, for callers that clean their text themselves."""
    stream: Any = sys.stderr if stderr else sys.stdout
    # While rich draws a live line, it replaces the streams.
    stream = getattr(stream, "rich_proxied_file", stream)
    return cast("TextIO", stream.raw if isinstance(stream, CleanStream) else stream)
