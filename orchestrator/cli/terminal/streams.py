"""Standard output and error as streams that clean all that is printed, with a way around for rich's console.

Code that prints needs no change for it: tasks, invoke, warnings, tracebacks. `ssh`, `exec` and `attach` hand the user's
terminal over to OpenSSH, and bypass these streams.
"""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

from orchestrator.cli.terminal.signals import lose_terminal
from orchestrator.core.values.printable import clean


class CleanStream:
    """A stream that removes control characters; `draw` is for kedge's own colours and cursor movements."""

    def __init__(self, raw: IO[str]) -> None:
        self.raw: Any = _TerminalStream(raw) if raw.isatty() else raw
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


class _TerminalStream:
    """A stream to a terminal: once that is closed, a write ends the command instead of failing."""

    def __init__(self, raw: IO[str]) -> None:
        self._raw = raw

    def write(self, text: str) -> int:
        """Write a text, which is lost if the terminal is closed."""
        try:
            return self._raw.write(text)
        except OSError as err:
            _require_closed(err)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        try:
            self._raw.flush()
        except OSError as err:
            _require_closed(err)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def _require_closed(err: OSError) -> None:
    """End the command if a write failed because the terminal is closed.

    Whoever draws is rarely prepared for a write that fails: rich would leave its displays half started, and fail with
    another error when they are stopped.

    Raises:
        OSError: the write failed for another reason.
    """
    if err.errno != errno.EIO:
        raise err
    lose_terminal()


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
