"""Stop requests: handlers only set a flag, so that a step or a save is never cut in two.

Installed before torch is imported: a SIGTERM during start-up is kept and answered at the first step.
"""

import signal
from types import FrameType


class StopFlag:
    """Remember that somebody asked this process to stop. Any number of SIGTERMs count as one."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def install(self) -> None:
        """Take over SIGTERM and SIGINT for the rest of the process."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def ignore_further(self) -> None:
        """Ignore SIGTERM from here on: the work is done, and the exit code must say how it went."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self.reason = self.reason or signal.Signals(signum).name
        if signum == signal.SIGINT:
            # The kernel's default ends the process even inside a long native call.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
