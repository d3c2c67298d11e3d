"""The use case of whoever needs a machine that a launch, killed or still at work, has left booting."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.app.root import App
from orchestrator.core.errors import ConflictError, UnreachableError
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.engine.boot import BOOT
from orchestrator.engine.reaching import reach
from orchestrator.engine.reconcile import reconcile
from orchestrator.engine.waiting import wait_for

_LOOKERS = timedelta(seconds=1)


def await_machine(app: App, record: RunRecord) -> Machine:
    """Return a run's machine once it has booted; a launch that is at work on it is left to end that itself.

    Raises:
        UnreachableError: it has none, or none that can be reached.
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

    machine = wait_for(look, BOOT, app.clock)
    if machine is None:
        raise _unreachable(record)
    return machine


def _reach(app: App, record: RunRecord) -> Machine:
    world = app.world(record.spec.provider)
    machines = app.ledger.machines(record.run_id, live_only=True)
    if not machines and record.stage is RunStage.LIVE:
        # The launch may have died before it could write down what it had made.
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
