"""Logs of jobs: bytes cut anywhere, on their way from the command's pipe to a terminal.

Promises: only text and colours reach the terminal, however the bytes were cut; the agent's lines don't depend on how
the pipe has cut the bytes, and no line is too long; a reader that reconnects loses and repeats nothing.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from random import Random

from orchestrator.agent.base.record import to_json
from orchestrator.agent.base.runlog import LINE_LIMIT_BYTES, LineSplitter, RunLog
from orchestrator.agent.watch.follow import LogReader
from orchestrator.cli.terminal.streams import CleanStream
from orchestrator.core.protocol.decoding import split_lines
from orchestrator.core.protocol.stream import parse_follow_event
from orchestrator.core.values.printable import clean, clean_coloured, clean_line, find_unprintable
from tests.fuzz.forms import AS_BYTES
from tests.fuzz.target import Target

_ENDS = re.compile(rb"\r\n|\n|\r")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,40}m")


def _run(data: bytes, folder: Path) -> None:
    pieces = _cut(data)
    _print(pieces)
    _split(data, pieces)
    _follow(pieces, folder / "run.log")


def _cut(data: bytes) -> list[bytes]:
    """Cut the bytes where they say themselves, so that a fuzzer can move the cuts."""
    random = Random(data[:8])
    cuts = sorted(random.randint(0, len(data)) for _ in range(random.randint(0, 8)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _print(pieces: list[bytes]) -> None:
    terminal = io.StringIO()
    stream = CleanStream(terminal)
    for piece in pieces:
        text = piece.decode(errors="surrogateescape")
        stream.write(text)
        assert clean(clean(text)) == clean(text)
        assert not find_unprintable(clean_line(text))
        coloured = clean_coloured(text)
        assert not find_unprintable(_COLOUR.sub("", coloured), lines=True)
        assert coloured.replace("\x1b", "").isascii() or len(coloured) <= len(text) * 2
    assert not find_unprintable(terminal.getvalue(), lines=True)


def _split(data: bytes, pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()
    whole = LineSplitter()
    assert lines == [*whole.feed(data), *whole.finish()], "the lines depend on the cuts"
    assert all(len(line) <= LINE_LIMIT_BYTES for line in lines)
    assert b"".join(lines) == _ENDS.sub(b"", data)
    assert b"\n".join(split_lines(data)) == data.removesuffix(b"\n")


def _follow(pieces: list[bytes], path: Path) -> None:
    log, splitter = RunLog(lambda: path), LineSplitter()
    reader, events = LogReader(path, 0), []
    for piece in pieces:
        log.lines(splitter.feed(piece))
        # The reader disconnects, and reconnects.
        reader = LogReader(path, reader.offset)
        events += reader.lines()
    log.lines(splitter.finish())
    events += reader.lines(with_rest=True)
    written = path.read_bytes() if path.exists() else b""
    assert reader.offset == len(written)
    taken = [parse_follow_event(json.dumps(to_json(event)).encode()) for event in events]
    assert [event.line for event in taken] == [line.decode(errors="replace") for line in split_lines(written)]
    assert [event.offset for event in taken] == sorted({event.offset for event in taken})


TARGET = Target(
    name="logs",
    run=_run,
    allowed=(),
    form=AS_BYTES,
    tokens=(
        *(
            b"\x1b[",
            b"\x1b]0;",
            b"\x07",
            b"\x1b\\",
            b"\x9b",
            b"\xc2\x9b",
            b"\x1bP",
            b"\xe2\x80\xae",
            b"\xe2\x80\xa8",
            b"\xf3\xa0\x81\x81",
        ),
        *(
            b"\x1b[31m",
            b"\x1b[38;5;1m",
            b"\x1b[0;5m",
            b"\x1b[;m",
            b"\r",
            b"\r\n",
            b"\n",
            b"\xff",
            b"\xed\xa0\x80",
            b"8;2;1;1;1",
        ),
    ),
    examples=600,
)
