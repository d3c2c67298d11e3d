"""`follow`: prints the log as it grows, and a report from time to time, as JSON lines.

Offsets are bytes of the log: a client that reconnects with its last offset neither misses nor repeats anything.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from pathlib import Path

from ..base import state
from ..base.files import write_json
from ..base.layout import Layout
from ..base.wire import Command, FollowEvent, to_json
from .report import make_report, size_of

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 2.0
_CHANGE_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--offset` and `--until-over`."""
    parser.add_argument("--offset", type=int, default=0, help="bytes of the log to skip")
    parser.add_argument("--until-over", action="store_true", help="end when the command is over")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Print events until the reader disconnects, or until the command is over; the last event is a report."""
    try:
        _follow(layout, LogReader(layout.log_file, args.offset), until_over=args.until_over)
    except BrokenPipeError:
        # The reader has disconnected: nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class LogReader:
    """Reads whole lines from an offset on.

    An offset beyond the end (a new machine has only what was uploaded) starts at the end.
    """

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self.offset = max(0, min(offset, size_of(path)))

    def lines(self, *, with_rest: bool = False) -> list[FollowEvent]:
        """Return the complete lines; `with_rest` includes an incomplete last line too."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self.offset)
                chunk = stream.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return []
        # A line that is longer than one read is split, because otherwise nothing after it would ever come.
        is_overlong = len(chunk) == _CHUNK_BYTES and b"\n" not in chunk
        if not (with_rest or is_overlong):
            chunk = chunk[: chunk.rfind(b"\n") + 1]
        events = []
        for line in io.BytesIO(chunk):
            self.offset += len(line)
            events.append(FollowEvent(self.offset, line=line.rstrip(b"\n").decode(errors="replace")))
        return events


def _follow(layout: Layout, reader: LogReader, *, until_over: bool) -> None:
    reported = 0.0
    told = Command()
    while True:
        command = state.observe(layout).command
        is_last = until_over and command.is_over
        while events := reader.lines(with_rest=is_last):
            _print(events)
        age = time.monotonic() - reported
        if is_last or age >= _REPORT_SECONDS or (command != told and age >= _CHANGE_SECONDS):
            write_json(layout.note("followed"), {"time": time.time()})
            _print([FollowEvent(reader.offset, report=make_report(layout))])
            reported, told = time.monotonic(), command
        if is_last:
            return
        time.sleep(_POLL_SECONDS)


def _print(events: list[FollowEvent]) -> None:
    sys.stdout.write("".join(json.dumps(to_json(event)) + "\n" for event in events))
    sys.stdout.flush()
