"""Put a new runner in the place of one that was killed."""

from __future__ import annotations

import time

from . import state
from .config import peek_run_config
from .launch import relaunch
from .layout import Layout
from .runlog import RunLog
from .state import RUNNER_DIED
from .wire import RESTARTING

_PATIENCE_SECONDS = 1.5


class Keeper:
    """Look after the runner."""

    def __init__(self, layout: Layout, log: RunLog) -> None:
        self._layout = layout
        self._log = log
        self._dead_since: float | None = None

    def step(self) -> None:
        """Recover once the runner has been dead for a moment, in which its supervisor may bring it back."""
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
            buried = state.bury(present, recovers=True)
            state.save(self._layout, buried)
        self._log.remark(f"{RUNNER_DIED}; the command is {buried.command.state}")
        state.end_processes(present)
        config = peek_run_config(self._layout)
        if config is not None and buried.command.state == RESTARTING:
            relaunch(self._layout, config)
