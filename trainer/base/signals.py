"""Stop requests by SIGTERM and SIGINT: handlers only set a flag, so that no step or save is interrupted.

The handlers are installed before torch is imported: a SIGTERM during start-up takes effect at the first step.
"""

import os
import signal
import threading
from types import FrameType

# The exit code that a shell reports for a program ended by SIGINT.
_ENDED_BY_SIGINT = 128 + signal.SIGINT


class StopFlag:
    """Records that somebody asked this process to stop. Any number of SIGTERMs count as one."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def install(self) -> None:
        """Install handlers for SIGTERM and SIGINT."""
        signal.signal(signal.SIGINT, self._on_signal)
        _watch_for_second_sigint()
        signal.signal(signal.SIGTERM, self._on_signal)

    def release(self) -> None:
        """Restore the signals' defaults if handlers were installed: what follows may be interrupted anywhere."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(signum) == self._on_signal:
                signal.signal(signum, signal.SIG_DFL)

    def ignore_further(self) -> None:
        """Ignore SIGTERM from now on: the work is done, and the exit code must report its outcome."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(signum).name
        if signum == signal.SIGINT:
            # The default action ends the process even inside a long native call.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _watch_for_second_sigint() -> None:
    """End the process at a second SIGINT even if Python hasn't handled the first.

    Python runs handlers only when the main thread leaves native code, which it may never do: for example in a
    collective whose peer is gone. The interpreter itself writes each signal's number to a wakeup pipe at once.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # A terminal's Ctrl-C reaches the loader processes too: theirs must not count here.
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
    threading.Thread(target=_end_at_second_sigint, args=(reader,), name="second SIGINT", daemon=True).start()


def _end_at_second_sigint(reader: int) -> None:
    seen = 0
    while seen < 2:
        seen += os.read(reader, 64).count(signal.SIGINT)
    os._exit(_ENDED_BY_SIGINT)
