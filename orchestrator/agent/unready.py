"""A boot that went wrong, and that nobody looks after: its machine would do nothing until its deadline."""

from __future__ import annotations

from . import state
from .config import peek_run_config
from .files import read_json
from .layout import Layout
from .runlog import RunLog
from .ships import followed_at
from .wire import IDLE, MachineConfig

_LINGERS = 5
"""How many times its linger such a machine stays: ten minutes, by default, for somebody to see what happened."""


class Unready:
    """Keep an eye on the boot's sentinel."""

    def __init__(self, layout: Layout, machine: MachineConfig, log: RunLog) -> None:
        self._layout = layout
        self._patience = _LINGERS * machine.linger
        self._log = log
        self._since: float | None = None

    def is_abandoned(self, now: float) -> bool:
        """Say whether the boot has failed for good, no command was begun since, and nobody has followed for a while.

        Args:
            now: Unix seconds.
        """
        if not self._has_failed():
            self._since = None
            return False
        if self._since is None:
            # Of the sentinel's own age nothing is known: after a reboot the one of the boot before is still there.
            self._since = now
            self._log.remark(f"the boot went wrong: the machine ends in {self._patience:g} s unless somebody follows")
        return now >= max(self._since, followed_at(self._layout)) + self._patience

    def _has_failed(self) -> bool:
        # Not every provider's sentinel says how it went.
        if read_json(self._layout.ready_file).get("ok") is not False:
            return False
        if state.load(self._layout).command.state != IDLE:
            return False
        config = peek_run_config(self._layout)
        return config is None or not config.keep
