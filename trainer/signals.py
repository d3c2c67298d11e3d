"""Stop requests: handlers only set a flag, so that a step or a save is never cut in two.

Installed before torch is imported: a SIGTERM during start-up is kept and answered at the first step.
"""

import os
import signal
import threading
from types import FrameType

# What a shell reports of a program that SIGINT has ended.
_ENDED_BY_SIGINT = 128 + signal.SIGINT


class StopFlag:
    """Remember that somebody asked this process to stop. Any number of SIGTERMs count as one."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def install(self) -> None:
        """Take over SIGTERM and SIGINT for the rest of the process."""
        signal.signal(signal.SIGINT, self._on_signal)
        _watch_for_second_sigint()
        signal.signal(signal.SIGTERM, self._on_signal)

    def release(self) -> None:
        """Give the signals back to the kernel's defaults, where they were taken: what follows may be cut anywhere."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(signum) == self._on_signal:
                signal.signal(signum, signal.SIG_DFL)

    def ignore_further(self) -> None:
        """Ignore SIGTERM from here on: the work is done, and the exit code must say how it went."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(signum).name
        if signum == signal.SIGINT:
            # The kernel's default ends the process even inside a long native call.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _watch_for_second_sigint() -> None:
    """End the process at a second SIGINT although Python hasn't come to handle the first.

    Python's handlers wait for the main thread to leave native code, which it may never do: in a collective whose other
    end is gone, for example. The interpreter's own handler writes each signal's number to a pipe at once.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Loader processes get a terminal's Ctrl-C as well: theirs must not count here.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=_end_at_second_sigint, args=(reader,), name="second SIGINT", daemon=True).start()


def _end_at_second_sigint(reader: int) -> None:
    seen = 0
    while seen < 2:
        seen += os.read(reader, 64).count(signal.SIGINT)
    os._exit(_ENDED_BY_SIGINT)
