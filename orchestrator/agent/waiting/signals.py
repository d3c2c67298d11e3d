"""Waits for signals: a stop request or the death of a child wakes the runner at once.

`_signal` is what `signal` is made of, without `enum`, which takes memory.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Collection, Sequence
    from types import FrameType
else:
    import _signal

_NAMES: dict[int, str] = {_signal.SIGTERM: "SIGTERM", _signal.SIGINT: "SIGINT", _signal.SIGHUP: "SIGHUP"}
_ALL = (*_NAMES, _signal.SIGCHLD)


class Signals:
    """Collects stop requests; `wait` returns early when one comes or a child dies.

    Attributes:
        stop: the first signal that asked for a stop; empty for none.
        abort: why the present attempt makes no sense any more; empty if it does.
    """

    def __init__(self) -> None:
        self.stop: str = ""
        self.abort: str = ""
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)

    @property
    def is_called(self) -> bool:
        """Whether the command has to end."""
        return bool(self.stop or self.abort)

    def install(self) -> None:
        """Handle SIGTERM, SIGINT, SIGHUP (unless nohup ignores it) and SIGCHLD, those that were held back included."""
        _signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        for number in _NAMES:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, self._on_stop)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ALL)

    def hold(self) -> None:
        """Hold signals back until `install`: the process is about to replace its program, which loses the handlers."""
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _ALL)

    def ask_to_abort(self, why: str) -> None:
        """End the present attempt; another thread may ask for it."""
        self.abort = why
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            return

    def wait(self, seconds: float, reading: Sequence[int] = (), writing: Sequence[int] = ()) -> Collection[int]:
        """Wait for this time, or until a signal comes or one of these descriptors is ready; return those that are."""
        readable, writable, _ = select.select([self._read_end, *reading], writing, [], max(0.0, seconds))
        try:
            os.read(self._read_end, 4096)
        except BlockingIOError:
            pass
        return {*readable, *writable}

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self.stop = self.stop or _NAMES[number]
