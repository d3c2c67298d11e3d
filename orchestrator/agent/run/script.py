"""Runs one shell script: starts it, waits for it, and ends all of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..base import processes
from ..base.runlog import RunLog
from .pump import Echo, Pump
from .signals import Signals

_LOOK_SECONDS = 0.25
_KILL_SECONDS = 5.0
_DRAIN_SECONDS = 2.0


class Script:
    """A script in its own session. The runner adopts its orphaned processes."""

    def __init__(self, path: Path, *, folder: Path, env: Mapping[str, str], log: RunLog, echo: Echo) -> None:
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["bash", "-o", "pipefail", str(path)],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self.group = self._process.pid
        self._exit_code: int | None = None
        self._pump = Pump(read_end, log, echo)

    def wait(self, signals: Signals, on_stop: Callable[[], None], grace: float) -> int:
        """Wait until the script and all of its processes end; return its exit code (128 + n for signal n).

        A stop request sends SIGTERM to the process group and gives it `grace` seconds to checkpoint: the shell
        dies at once, its children need longer. Processes that are still running when the script ends by itself
        are ended in the same way.
        """
        while self._reap() and self._exit_code is None and not signals.stop:
            signals.wait(_LOOK_SECONDS)
        if signals.stop:
            on_stop()
        self._end(signals, grace)
        self._pump.finish(_DRAIN_SECONDS)
        return 0 if self._exit_code is None else self._exit_code

    def _end(self, signals: Signals, grace: float) -> None:
        give_up = time.monotonic() + grace
        processes.signal_group(self.group, signal.SIGTERM)
        others_were_asked = False
        while self._is_at_work() and time.monotonic() < give_up:
            if not others_were_asked and not processes.group_exists(self.group):
                # Processes outside the group (torchrun's workers) got no signal if their parent is dead.
                processes.signal_all(processes.descendants(os.getpid()), signal.SIGTERM)
                others_were_asked = True
            signals.wait(min(_LOOK_SECONDS, give_up - time.monotonic()))
        self._kill()

    def _kill(self) -> None:
        give_up = time.monotonic() + _KILL_SECONDS
        while self._is_at_work() and time.monotonic() < give_up:
            processes.signal_group(self.group, signal.SIGKILL)
            processes.signal_all(processes.descendants(os.getpid()), signal.SIGKILL)
            time.sleep(0.02)

    def _is_at_work(self) -> bool:
        return self._reap() or processes.group_exists(self.group)

    def _reap(self) -> bool:
        """Reap dead children, adopted ones too; False if there are no children left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._process.pid:
                code = os.waitstatus_to_exitcode(status)
                self._process.returncode = code
                self._exit_code = code if code >= 0 else 128 - code
