"""What ends a command from outside: Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it is closed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STREAMS = (0, 1, 2)
# The signals that came while `waiting_signals` let them wait; None where nothing makes them wait.
_waiting: list[int] | None = None


class EndedBySignalError(KeyboardInterrupt):
    """One of these signals: what Ctrl-C leaves clean, the others leave clean too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def take_signals() -> None:
    """Let each of these signals end the command in the same way; one that is ignored, as by `nohup`, stays ignored."""
    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Tell the exit code as shells do: 128 and the signal's number."""
    return 128 + (interrupt.number if isinstance(interrupt, EndedBySignalError) else signal.SIGINT)


def end(number: int, _frame: FrameType | None) -> None:
    """Interrupt the command.

    Raises:
        EndedBySignalError: always, but within `waiting_signals`, which raises it later.
    """
    # A closed terminal sends SIGHUP, its shell another one, a logout SIGTERM as well, and somebody may close it after
    # Ctrl-C. None of them may cut short what the first one cleans up; only Ctrl-C, pressed again, does.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _go_on)
    let_go_of_closed_streams()
    if _waiting is None or _waiting:  # Ctrl-C, pressed again, waits for nothing
        raise EndedBySignalError(number)
    _waiting.append(number)


@contextmanager
def waiting_signals() -> Iterator[None]:
    """Let these signals wait until the block is left, for what isn't whole when it is interrupted halfway.

    rich's live displays are of this kind: stopped while it starts, one fails with "pop from empty list".

    Raises:
        EndedBySignalError: one came within the block.
    """
    global _waiting  # noqa: PLW0603 - a process has one set of signal handlers
    came = _waiting = []
    try:
        yield
    finally:
        _waiting = None
        if came:
            raise EndedBySignalError(came[0])


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Go on cleaning up; a handler, because children would inherit SIG_IGN."""
    let_go_of_closed_streams()


def let_go_of_closed_streams() -> bool:
    """Let what is printed from now on go nowhere if nobody can read it, since writing to a closed terminal fails.

    Returns:
        whether there was such a stream.
    """
    poll = select.poll()
    for stream in _STREAMS:
        poll.register(stream, 0)
    closed = [stream for stream, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in closed:
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return bool(closed)
