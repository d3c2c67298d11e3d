"""Looks whether the head of the run is done: until then, the run's other machines stay, whatever their commands do."""

from __future__ import annotations

import time

from ..base.wire import FAILED, SUCCEEDED, MachineConfig
from ..results.upload import read_manifest
from ..s3.store import open_store

_SILENT_SECONDS = 3600.0
"""A head that has uploaded nothing for this long is lost: it uploads every half a minute, if it can."""


class HeadWatch:
    """What the head has uploaded of its command, read from the run's place in the store.

    Attributes:
        is_done: its command is over for good, or it has uploaded nothing for so long that it must be lost.
    """

    def __init__(self, machine: MachineConfig, *, silence: float = _SILENT_SECONDS) -> None:
        self._machine = machine
        self._silence = silence
        self._next_look = 0.0
        self._seen = 0.0
        self._seen_at = time.monotonic()
        self.is_done = not machine.rank

    def look(self) -> None:
        """Read the head's last upload, if it is time; it counts only if it is newer than this machine.

        A head that was done may be started again, or be replaced by another one. Silence is measured by this machine's
        own clock, and only while the store answers.

        Raises:
            AgentError: the upload is damaged.
            OSError: the store doesn't answer.
        """
        if not self._machine.rank or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._machine.ship_every
        try:
            store = open_store(self._machine)
            manifest = read_manifest(store) if store is not None else {}
            uploaded_at = float(manifest.get("time", 0))
        except BaseException:
            self._seen_at = time.monotonic()
            raise
        if uploaded_at != self._seen:
            self._seen, self._seen_at = uploaded_at, time.monotonic()
        command = manifest.get("command")
        state = command.get("state") if isinstance(command, dict) else ""
        # An earlier head, which this machine's run has been resumed from, may have failed.
        is_own = uploaded_at > self._machine.created
        is_silent = time.monotonic() - self._seen_at > self._silence
        self.is_done = (is_own and state in (SUCCEEDED, FAILED)) or is_silent
