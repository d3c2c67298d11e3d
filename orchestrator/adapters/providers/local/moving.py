"""Moves the deadline of a local machine: its init holds it."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import datetime, timedelta

from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.core.errors import KedgeError
from orchestrator.core.ports import Clock

_CONFIRMS = timedelta(seconds=30)
_POLL = timedelta(milliseconds=10)


def move_deadline(folder: MachineFolder, deadline_at: datetime, clock: Clock) -> None:
    """Write the deadline where init reads it, wake init, and wait until it has armed that.

    Raises:
        KedgeError: there is no such machine, or its init is dead or doesn't confirm it.
    """
    facts, init = folder.facts(), folder.init()
    if facts is None or init is None:
        raise KedgeError(
            f"the deadline of machine {folder.id} can't be moved",
            why="there is no such machine" if facts is None else "its init is dead: nothing ends it",
            fix=f"see `kedge status {folder.id.rpartition('-m')[0]}`",
        )
    moved = facts.moved_to(deadline_at.timestamp())
    folder.write_facts(moved)
    with contextlib.suppress(ProcessLookupError):
        os.kill(init.pid, signal.SIGHUP)
    if not poll_until(lambda: folder.armed() == moved.deadline_at, _CONFIRMS, clock, first=_POLL, longest=_POLL):
        raise KedgeError(
            f"the init of machine {folder.id} hasn't moved its deadline",
            why=f"it hasn't confirmed that within {_CONFIRMS.total_seconds():.0f} s",
            fix="run the command again",
        )
