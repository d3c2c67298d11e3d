"""One command on a machine, whatever carries it: input, both outputs and a deadline at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from orchestrator.core.decoding import ANSWER_BYTES, LINE_BYTES, nonsense
from orchestrator.core.errors import NonsenseError, UnreachableError
from orchestrator.core.ports import Completed
from orchestrator.core.units import format_bytes, format_duration

DEFAULT_TIMEOUT = timedelta(minutes=10)
SILENCE = timedelta(minutes=10)
"""How long a stream may bring nothing: the agent's brings a report every two seconds, unless its machine swaps."""
_LAST_WORDS_SECONDS = 2.0


class Session(Protocol):
    """A command that runs on a machine. Reads return b"" at the end."""

    def write(self, chunk: bytes) -> None:
        """Send input.

        Raises:
            OSError: nobody reads it any more.
        """

    def end_input(self) -> None:
        """Tell the command that there is no more input.

        Raises:
            OSError: nobody reads it any more.
        """

    def read_stdout(self) -> bytes:
        """Return what came, waiting for at least one byte."""

    def read_stderr(self) -> bytes:
        """Return what came, waiting for at least one byte."""

    def wait(self) -> int:
        """Return the exit code, once both outputs have ended."""

    def abort(self) -> None:
        """Give the command up at once, from any thread; reads and waits elsewhere end soon."""

    def close(self) -> None:
        """Let go of what the session holds; not while somebody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a session ended."""

    completed: Completed
    timed_out: bool


def converse(session: Session, chunks: Iterable[bytes], timeout: timedelta, *, most: int = ANSWER_BYTES) -> Outcome:
    """Feed a command and collect what it prints, until it ends, its time is up, or it has printed too much.

    An exception out of `chunks` gives the command up, which may take that for the end of its input.

    Raises:
        NonsenseError: it prints more than `most` bytes on one of its outputs.
    """
    stdout = Collector(session.read_stdout, most, session.abort)
    stderr = Collector(session.read_stderr, most, session.abort)
    try:
        with Alarm(timeout, session.abort) as alarm:
            _feed(session, chunks)
            stdout.join()
            stderr.join()
            exit_code = session.wait()
    except BaseException:
        session.abort()
        raise
    finally:
        _let_go(session, stdout, stderr)
    completed = Completed(exit_code=exit_code, stdout=stdout.take(), stderr=stderr.take())
    return Outcome(completed=completed, timed_out=alarm.rang)


def read_lines(session: Session, end: Callable[[Completed], None], *, silence: timedelta = SILENCE) -> Iterator[bytes]:
    """Yield a command's lines as they come, then hand its exit code and standard error to `end`.

    Raises:
        NonsenseError: a line has no end, or its complaints have none.
        UnreachableError: nothing came for too long.
    """
    stderr = Collector(session.read_stderr, ANSWER_BYTES, session.abort)
    try:
        with contextlib.suppress(OSError):
            session.end_input()
        yield from _split_lines(session, silence)
        with Alarm(silence, session.abort):
            stderr.join()
            exit_code = session.wait()
    finally:
        session.abort()
        _let_go(session, stderr)
    end(Completed(exit_code=exit_code, stdout=b"", stderr=stderr.take()))


def _split_lines(session: Session, silence: timedelta) -> Iterator[bytes]:
    # What has come of a line is never looked at again before its end comes: it may be long, and come in small pieces.
    begun = bytearray()
    while data := _read_within(session, silence):
        first, *more = data.split(b"\n")
        begun += first
        if more:
            yield bytes(begun)
            yield from more[:-1]
            begun = bytearray(more[-1])
        if len(begun) > LINE_BYTES:
            raise nonsense("a line", f"it has no end within {format_bytes(LINE_BYTES)}")
    if begun:
        yield bytes(begun)


def _read_within(session: Session, silence: timedelta) -> bytes:
    with Alarm(silence, session.abort) as alarm:
        data = session.read_stdout()
    if alarm.rang and not data:
        raise UnreachableError(f"the machine has said nothing for {format_duration(silence)}")
    return data


def _feed(session: Session, chunks: Iterable[bytes]) -> None:
    # A command that ends without reading everything is no failure of the sender's: its exit code tells.
    for chunk in chunks:
        try:
            session.write(chunk)
        except OSError:
            return
    with contextlib.suppress(OSError):
        session.end_input()


def _let_go(session: Session, *collectors: Collector) -> None:
    for collector in collectors:
        collector.join(_LAST_WORDS_SECONDS)
    # Closing a pipe under a reader's hands may block: a reader that is still stuck keeps it.
    if not any(collector.is_alive() for collector in collectors):
        session.close()


class Collector(threading.Thread):
    """Keeps what a command prints, so that it never blocks on a full pipe, and gives up one that prints too much."""

    def __init__(self, read: Callable[[], bytes], most: int, abort: Callable[[], None]) -> None:
        """Begin to read.

        Args:
            read: waits for bytes; b"" at the end.
            most: bytes.
            abort: ends the command.
        """
        super().__init__(daemon=True)
        self._read = read
        self._most = most
        self._abort = abort
        self._came = bytearray()
        self._overflowed = False
        self.start()

    def run(self) -> None:
        """Read to the end."""
        while part := self._read():
            self._came += part
            if len(self._came) > self._most:
                self._overflowed = True
                self._abort()
                return

    def take(self) -> bytes:
        """Return all that came.

        Raises:
            NonsenseError: it was too much.
        """
        if self._overflowed:
            raise _too_much(self._most)
        return bytes(self._came)


def _too_much(most: int) -> NonsenseError:
    return nonsense("its answer", f"it goes on for more than {format_bytes(most)}")


class Alarm:
    """Calls something once a time is up, unless its block has ended by then."""

    def __init__(self, after: timedelta, call: Callable[[], None]) -> None:
        self._call = call
        self._timer = threading.Timer(after.total_seconds(), self._ring)
        self._timer.daemon = True
        self.rang = False

    def _ring(self) -> None:
        self.rang = True
        self._call()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # It may be ringing just now: what it calls must not be closed under its hands.
        self._timer.join()
