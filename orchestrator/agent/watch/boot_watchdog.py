"""The boot watchdog: ends a machine whose boot has failed, and which would stay idle until its deadline."""

from __future__ import annotations

from ..base import state
from ..base.config import peek_run_config
from ..base.files import read_json
from ..base.layout import Layout
from ..base.runlog import RunLog
from ..base.wire import IDLE, MachineConfig
from .upload_loop import followed_at

_LINGERS = 5
"""How long such a machine stays, in multiples of its linger: ten minutes by default, to look at what happened."""


class BootWatchdog:
    """Watches the boot's sentinel."""

    def __init__(self, layout: Layout, machine: MachineConfig, log: RunLog) -> None:
        self._layout = layout
        self._linger_seconds = _LINGERS * machine.linger
        self._log = log
        self._since: float | None = None

    def is_abandoned(self, now: float) -> bool:
        """Whether the boot has failed for good, no command was started since, and nobody has followed for a while.

        Args:
            now: Unix seconds.
        """
        if not self._has_failed():
            self._since = None
            return False
        if self._since is None:
            # The sentinel's age can't be used: after a reboot the previous boot's sentinel is still there.
            self._since = now
            self._log.remark(
                f"the boot went wrong{self._why()}: the machine ends in {self._linger_seconds:g} s unless somebody "
                "follows"
            )
        return now >= max(self._since, followed_at(self._layout)) + self._linger_seconds

    def _why(self) -> str:
        """Return the phase that failed, and its error in brackets; nobody may be there to read the sentinel."""
        phases = read_json(self._layout.ready_file).get("phases")
        failed = [each for each in phases if isinstance(each, dict) and each.get("error")] if phases else []
        return f" ({failed[-1].get('phase')}: {failed[-1]['error']})" if failed else ""

    def _has_failed(self) -> bool:
        # Not every provider's sentinel has the outcome.
        if read_json(self._layout.ready_file).get("ok") is not False:
            return False
        if state.observe_run(self._layout).command.state != IDLE:
            return False
        config = peek_run_config(self._layout)
        return config is None or not config.keep
