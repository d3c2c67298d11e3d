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
from ..waiting.leader import Leader
from ..waiting.pump import Echo, Pump
from ..waiting.signals import Signals

_LOOK_SECONDS = 0.25
_KILL_SECONDS = 5.0
_KILL_AGAIN_SECONDS = 0.02
_ABORT_SECONDS = 10.0
"""How long a command may take to exit whose other machines are gone; it can't checkpoint with them."""
_DRAIN_SECONDS = 2.0


def start_script(path: Path, *, folder: Path, env: Mapping[str, str], log: RunLog, echo: Echo) -> Leader:
    """Start a script in its own session. The runner adopts its orphaned processes."""
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
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
    # The leader reaps it.
    process.returncode = 0
    return Leader(process.pid, Pump(read_end, log, echo))


class Script:
    """A script that was started, with all of its processes."""

    def __init__(self, leader: Leader, signals: Signals) -> None:
        self._leader = leader
        self._signals = signals

    def wait(self, on_stop: Callable[[], None], grace: float) -> int:
        """Wait until the script and all of its processes end; return its exit code (128 + n for signal n).

        A stop request sends SIGTERM to the process group and gives it `grace` seconds to checkpoint: the shell
        dies at once, its children need longer. Processes that are still running when the script ends by itself
        are ended in the same way. An attempt that is aborted gets less time.
        """
        signals = self._signals
        self._leader.wait(signals)
        if signals.is_called:
            on_stop()
        self._end(min(grace, _ABORT_SECONDS) if signals.abort and not signals.stop else grace)
        self._drain()
        return self._leader.exit_code or 0

    def _end(self, grace: float) -> None:
        group = self._leader.pid
        give_up = time.monotonic() + grace
        processes.signal_group(group, signal.SIGTERM)
        others_were_asked = False
        while self._is_at_work() and time.monotonic() < give_up:
            if not others_were_asked and not processes.group_exists(group):
                # Processes outside the group (torchrun's workers) got no signal if their parent is dead.
                processes.signal_all(processes.descendants(os.getpid()), signal.SIGTERM)
                others_were_asked = True
            self._leader.look(self._signals, min(_LOOK_SECONDS, give_up - time.monotonic()))
        self._kill()

    def _kill(self) -> None:
        give_up = time.monotonic() + _KILL_SECONDS
        while self._is_at_work() and time.monotonic() < give_up:
            processes.signal_group(self._leader.pid, signal.SIGKILL)
            processes.signal_all(processes.descendants(os.getpid()), signal.SIGKILL)
            self._leader.look(self._signals, _KILL_AGAIN_SECONDS)

    def _drain(self) -> None:
        give_up = time.monotonic() + _DRAIN_SECONDS
        while self._leader.pump.is_open and (left := give_up - time.monotonic()) > 0:
            self._leader.look(self._signals, left)
        self._leader.pump.close()

    def _is_at_work(self) -> bool:
        return self._leader.reap() or processes.group_exists(self._leader.pid)
