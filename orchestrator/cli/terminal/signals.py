"""Handles the signals that end a command: Ctrl-C, SIGTERM, and SIGHUP, which a closed terminal sends."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STREAMS = (0, 1, 2)
# The signals that `waiting_signals` has deferred; None outside of such a block.
_waiting: list[int] | None = None


class EndedBySignalError(KeyboardInterrupt):
    """One of these signals: it triggers the same clean-up as Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def take_signals() -> None:
    """Let each of these signals end the command in the same way; an ignored one, as under `nohup`, stays ignored."""
    for number in _ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code that shells use: 128 plus the signal's number."""
    return 128 + (interrupt.number if isinstance(interrupt, EndedBySignalError) else signal.SIGINT)


def end(number: int, _frame: FrameType | None) -> None:
    """Interrupt the command.

    Raises:
        EndedBySignalError: always; within `waiting_signals`, at the end of the block.
    """
    # A closed terminal sends SIGHUP, its shell another one, a logout SIGTERM as well, and somebody may close it after
    # Ctrl-C. None of them may interrupt the clean-up after the first one; only Ctrl-C, pressed again, may.
    outlast_signals()
    let_go_of_closed_streams()
    if _waiting is None or _waiting:  # Ctrl-C, pressed again, isn't deferred
        raise EndedBySignalError(number)
    _waiting.append(number)


@contextmanager
def waiting_signals() -> Iterator[None]:
    """Defer these signals to the end of the block, for code that would be left broken by an interruption.

    rich's live displays are an example: one that is stopped while it starts fails with "pop from empty list".

    Raises:
        EndedBySignalError: a signal arrived within the block.
    """
    global _waiting  # noqa: PLW0603 - a process has one set of signal handlers
    came = _waiting = []
    try:
        yield
    finally:
        _waiting = None
        if came:
            raise EndedBySignalError(came[0])


def outlast_signals() -> None:
    """Let neither SIGTERM nor SIGHUP interrupt this command any more: it is ending already."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _go_on)


def lose_terminal() -> None:
    """Do what SIGHUP does, after a write has shown that the terminal is closed: the signal itself may come later.

    The kernel sends it to the shell, which passes it on. A command that ignores SIGHUP continues without its terminal.
    """
    let_go_of_closed_streams()
    # Not `raise_signal`: another thread may have written, and the main thread may be asleep.
    os.kill(os.getpid(), signal.SIGHUP)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    """Continue the clean-up; a handler, because children would inherit SIG_IGN."""
    let_go_of_closed_streams()


def let_go_of_closed_streams() -> bool:
    """Discard further output to streams that are closed, because writing to a closed terminal fails.

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
