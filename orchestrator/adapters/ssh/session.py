"""Runs one command on a machine, over either transport: streams input and both outputs, with a time limit."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from orchestrator.core.errors import NonsenseError, UnreachableError
from orchestrator.core.ports import Completed
from orchestrator.core.protocol.decoding import ANSWER_BYTES, LINE_BYTES, nonsense
from orchestrator.core.values.units import format_bytes, format_duration

DEFAULT_TIMEOUT = timedelta(minutes=10)
SILENCE = timedelta(minutes=10)
"""How long a stream may be silent: the agent sends a report every two seconds, unless its machine swaps."""
_LAST_WORDS_SECONDS = 2.0


class Session(Protocol):
    """A running command on a machine. Reads return b"" at the end."""

    def write(self, chunk: bytes) -> None:
        """Send input.

        Raises:
            OSError: the command no longer reads it.
        """

    def end_input(self) -> None:
        """Tell the command that there is no more input.

        Raises:
            OSError: the command no longer reads it.
        """

    def read_stdout(self) -> bytes:
        """Return what has arrived, waiting for at least one byte."""

    def read_stderr(self) -> bytes:
        """Return what has arrived, waiting for at least one byte."""

    def wait(self) -> int:
        """Return the exit code; only after both outputs have ended."""

    def abort(self) -> None:
        """Abort the command, from any thread; reads and waits in other threads end soon."""

    def close(self) -> None:
        """Release the session's resources; not while another thread reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a session ended."""

    completed: Completed
    timed_out: bool


class SessionRemote(ABC):
    """The part of `core.ports.Remote` that both transports share."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        """Run a command to its end; the default timeout is ten minutes."""
        return self._converse(argv, (stdin,) if stdin else (), timeout or DEFAULT_TIMEOUT, most)

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        """Run a command and stream chunks into it; the default timeout is ten minutes."""
        return self._converse(argv, chunks, timeout or DEFAULT_TIMEOUT, ANSWER_BYTES)

    @abstractmethod
    def _converse(self, argv: Sequence[str], chunks: Iterable[bytes], limit: timedelta, most: int) -> Completed:
        """Run a command in its own session, and distinguish a broken connection from a failed command."""


def converse(session: Session, chunks: Iterable[bytes], timeout: timedelta, *, most: int = ANSWER_BYTES) -> Outcome:
    """Send a command its input and collect its outputs, until it ends, its time is up, or it has printed too much.

    An exception from `chunks` aborts the command, which may see that as the end of its input.

    Raises:
        NonsenseError: it prints more than `most` bytes to one of its outputs.
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
    """Yield a command's lines as they arrive, then pass its exit code and standard error to `end`.

    Raises:
        NonsenseError: a line, or its standard error, is too long.
        UnreachableError: it was silent for too long.
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
    # Each byte is searched once for the line's end, because a long line may come in many small pieces.
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
    # A command may end without reading all its input; its exit code tells whether that is a failure.
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
    # Closing a pipe while a thread reads it may block, so it stays open if its reader is still stuck.
    if not any(collector.is_alive() for collector in collectors):
        session.close()


class Collector(threading.Thread):
    """Collects a command's output in a thread, so that its pipe never fills up; aborts one that prints too much."""

    def __init__(self, read: Callable[[], bytes], most: int, abort: Callable[[], None]) -> None:
        """Start to read.

        Args:
            read: waits for bytes; returns b"" at the end.
            most: the most bytes.
            abort: aborts the command.
        """
        super().__init__(daemon=True)
        self._read = read
        self._most = most
        self._abort = abort
        self._came = bytearray()
        self._overflowed = False
        self.start()

    def run(self) -> None:
        """Read to the end. What follows an abort isn't kept: the command may have to print something before it ends."""
        while part := self._read():
            if self._overflowed:
                continue
            self._came += part
            if len(self._came) > self._most:
                self._overflowed = True
                self._abort()

    def take(self) -> bytes:
        """Return the whole output.

        Raises:
            NonsenseError: it was too long.
        """
        if self._overflowed:
            raise _too_much(self._most)
        return bytes(self._came)


def _too_much(most: int) -> NonsenseError:
    return nonsense("its answer", f"it goes on for more than {format_bytes(most)}")


class Alarm:
    """Calls a function when its time is up, unless its `with` block has ended by then."""

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
        # Wait for a call that is already running: what it uses must not be closed before it ends.
        self._timer.join()
