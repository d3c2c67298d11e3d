"""The runner watchdog: replaces a runner that was killed."""

from __future__ import annotations

import time

from ..base import state
from ..base.config import peek_run_config
from ..base.layout import Layout
from ..base.runlog import RunLog
from ..base.state import RUNNER_DIED
from ..base.wire import RESTARTING
from ..run.start import relaunch

_PATIENCE_SECONDS = 1.5


class RunnerWatchdog:
    """Watches the runner."""

    def __init__(self, layout: Layout, log: RunLog) -> None:
        self._layout = layout
        self._log = log
        self._dead_since: float | None = None

    def step(self) -> None:
        """Recover after the runner has been dead for a moment, during which its supervisor may restart it."""
        present = state.load(self._layout)
        if not present.command.is_live or present.runner_lives:
            self._dead_since = None
            return
        self._dead_since = self._dead_since or time.monotonic()
        if time.monotonic() - self._dead_since >= _PATIENCE_SECONDS:
            self._dead_since = None
            self._recover()

    def _recover(self) -> None:
        with state.changing(self._layout):
            present = state.load(self._layout)
            if not present.command.is_live or present.runner_lives:
                return
            after = state.after_runner_death(present, recovers=True)
            state.save(self._layout, after)
        self._log.remark(f"{RUNNER_DIED}; the command is {after.command.state}")
        state.end_processes(present)
        config = peek_run_config(self._layout)
        if config is not None and after.command.state == RESTARTING:
            relaunch(self._layout, config)
