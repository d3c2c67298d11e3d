"""Waits for a run's machine that is still booting, whether its launch is still running or was killed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import ConflictError, UnreachableError
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.engine.observing.reconcile import reconcile
from orchestrator.engine.steps.boot import BOOT
from orchestrator.engine.steps.reaching import reach

if TYPE_CHECKING:
    from orchestrator.app.root import App

_LOOKERS = timedelta(seconds=1)
_FIRST = timedelta(milliseconds=100)
_LONGEST = timedelta(seconds=3)


def await_machine(app: App, record: RunRecord) -> Machine:
    """Return a run's machine once it has booted; if a launch is acting on it, that launch completes the boot.

    Raises:
        UnreachableError: the run has no machine, or none that can be reached.
    """
    waited: list[str] = []

    def look() -> Machine | None:
        try:
            with app.ledger.lock(record.run_id, wait=_LOOKERS):
                return _reach(app, record)
        except ConflictError:
            if not waited:
                waited.append(record.run_id)
                app.tell(f"another command is at work on run {record.run_id}: waiting for its machine")
            return None

    machine = poll_until(look, BOOT, app.clock, first=_FIRST, longest=_LONGEST)
    if machine is None:
        raise _unreachable(record)
    return machine


def _reach(app: App, record: RunRecord) -> Machine:
    world = app.world(record.spec.provider)
    machines = app.ledger.machines(record.run_id, live_only=True)
    if not machines and record.stage is RunStage.LIVE:
        # The launch may have died before it could record what it had created.
        reconcile(world, record.run_id)
        machines = app.ledger.machines(record.run_id, live_only=True)
    if not machines:
        raise _unreachable(record)
    return reach(world, machines[-1], app.tell)


def _unreachable(record: RunRecord) -> UnreachableError:
    return UnreachableError(
        f"run {record.run_id} has no machine that can be reached",
        why="it was torn down, it ended itself, or it has not booted",
        fix=f"see `kedge status {record.run_id}`; `kedge resume {record.run_id}` gives it a machine",
    )
