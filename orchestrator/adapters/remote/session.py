"""One command on a machine, whatever carries it: input, both outputs and a deadline at the same time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self

from orchestrator.core.ports import Completed

DEFAULT_TIMEOUT = timedelta(minutes=10)
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


def converse(session: Session, chunks: Iterable[bytes], timeout: timedelta) -> Outcome:
    """Feed a command and collect what it prints, until it ends or its time is up.

    An exception out of `chunks` gives the command up, which may take that for the end of its input.
    """
    stdout, stderr = _Collector(session.read_stdout), _Collector(session.read_stderr)
    try:
        with _Alarm(timeout, session.abort) as alarm:
            _feed(session, chunks)
            stdout.join()
            stderr.join()
            exit_code = session.wait()
    except BaseException:
        session.abort()
        raise
    finally:
        _let_go(session, stdout, stderr)
    completed = Completed(exit_code=exit_code, stdout=stdout.content, stderr=stderr.content)
    return Outcome(completed=completed, timed_out=alarm.rang)


def read_lines(session: Session, end: Callable[[Completed], None]) -> Iterator[bytes]:
    """Yield a command's lines as they come, then hand its exit code and standard error to `end`."""
    stderr = _Collector(session.read_stderr)
    try:
        with contextlib.suppress(OSError):
            session.end_input()
        yield from _split_lines(session)
        stderr.join()
        exit_code = session.wait()
    finally:
        session.abort()
        _let_go(session, stderr)
    end(Completed(exit_code=exit_code, stdout=b"", stderr=stderr.content))


def _split_lines(session: Session) -> Iterator[bytes]:
    rest = b""
    while data := session.read_stdout():
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _feed(session: Session, chunks: Iterable[bytes]) -> None:
    # A command that ends without reading everything is no failure of the sender's: its exit code tells.
    for chunk in chunks:
        try:
            session.write(chunk)
        except OSError:
            return
    with contextlib.suppress(OSError):
        session.end_input()


def _let_go(session: Session, *collectors: _Collector) -> None:
    for collector in collectors:
        collector.join(_LAST_WORDS_SECONDS)
    # Closing a pipe under a reader's hands may block: a reader that is still stuck keeps it.
    if not any(collector.is_alive() for collector in collectors):
        session.close()


class _Collector(threading.Thread):
    """Keeps what a command prints, so that it never blocks on a full pipe."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        super().__init__(daemon=True)
        self._read = read
        self._parts: list[bytes] = []
        self.start()

    def run(self) -> None:
        while part := self._read():
            self._parts.append(part)

    @property
    def content(self) -> bytes:
        return b"".join(self._parts)


class _Alarm:
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
