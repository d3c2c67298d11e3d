"""`follow`: prints logs as they grow, and a report from time to time, as JSON lines.

Offsets are bytes of each log: a client that reconnects with its last offset neither misses nor repeats anything.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..base import state
from ..base.config import choose_tasks, configure_tasks, list_tasks, present_log
from ..base.errors import RequestError
from ..base.files import write_json
from ..base.layout import Layout
from ..base.record import to_json
from ..base.wire import Command, FollowEvent
from .report import make_report, size_of

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 2.0
_CHANGE_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `--task`, `--offset` and `--until-over`."""
    configure_tasks(parser)
    parser.add_argument(
        "--offset", action="append", default=[], metavar="[TASK=]BYTES", help="bytes of a task's log to skip"
    )
    parser.add_argument("--until-over", action="store_true", help="end when these tasks are over")


def execute(layout: Layout, args: argparse.Namespace) -> int:
    """Print events until the reader disconnects, or until the tasks are over; the last event is a report."""
    try:
        choose_tasks(layout, args.task)
        readers = LogReaders(layout, args.task, _parse_offsets(args.offset))
        _follow(layout, readers, args.task, until_over=args.until_over)
    except BrokenPipeError:
        # The reader has disconnected: nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parse_offsets(texts: Sequence[str]) -> dict[str, int]:
    """Parse offsets by task; one without a task is that of the machine's log."""
    offsets = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not number.isdecimal():
            raise RequestError(f"{text!r} is not an offset", fix="write a number of bytes, or TASK=BYTES")
        offsets[name] = int(number)
    return offsets


class LogReaders:
    """Reads the logs of the run's present tasks, and the machine's own, which has no name."""

    def __init__(self, layout: Layout, names: Sequence[str], offsets: dict[str, int]) -> None:
        self._layout = layout
        self._names = names
        self._offsets = offsets
        self._readers: dict[Path, tuple[str, LogReader]] = {}

    @property
    def offset(self) -> int:
        """The offset in the machine's log."""
        return self._open("", present_log(self._layout)).offset

    def events(self, *, with_rest: bool = False) -> list[FollowEvent]:
        """Return new complete lines of each log; `with_rest` includes incomplete last lines too."""
        tasks = list_tasks(self._layout)
        logs = {"": present_log(self._layout), **{name: task.log_file for name, task in tasks.items()}}
        chosen = {path: name for name, path in logs.items() if not self._names or name in ("", *self._names)}
        ended = self._readers.keys() - chosen.keys()
        # The last lines of a mode that has ended may have come since the last look.
        if left := [event for path in ended for event in self._read(path, with_rest=True)]:
            return left
        for path in ended:
            del self._readers[path]
        for path, name in chosen.items():
            self._open(name, path)
        return [event for path in chosen for event in self._read(path, with_rest=with_rest)]

    def _read(self, path: Path, *, with_rest: bool) -> list[FollowEvent]:
        name, reader = self._readers[path]
        return [event.replace(task=name) for event in reader.lines(with_rest=with_rest)]

    def _open(self, name: str, path: Path) -> LogReader:
        if path not in self._readers:
            # The log of a later mode begins anew.
            self._readers[path] = name, LogReader(path, self._offsets.pop(name, 0))
        return self._readers[path][1]


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


def _follow(layout: Layout, readers: LogReaders, names: Sequence[str], *, until_over: bool) -> None:
    reported = 0.0
    told = Command()
    while True:
        command = _observe(layout, names)
        is_last = until_over and command.is_over
        while events := readers.events(with_rest=is_last):
            _print(events)
        age = time.monotonic() - reported
        if is_last or age >= _REPORT_SECONDS or (command != told and age >= _CHANGE_SECONDS):
            write_json(layout.note("followed"), {"time": time.time()})
            _print([FollowEvent(readers.offset, report=make_report(layout))])
            reported, told = time.monotonic(), command
        if is_last:
            return
        time.sleep(_POLL_SECONDS)


def _observe(layout: Layout, names: Sequence[str]) -> Command:
    """Return the state of the named tasks together, or of the run, which isn't over while another mode follows."""
    if not names:
        return state.observe_run(layout).command
    return state.together(state.observe(task).command for task in choose_tasks(layout, names).values())


def _print(events: list[FollowEvent]) -> None:
    sys.stdout.write("".join(json.dumps(to_json(event)) + "\n" for event in events))
    sys.stdout.flush()
