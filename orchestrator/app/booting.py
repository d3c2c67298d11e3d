"""Waits for a run's machine that is still booting, whether its launch is still running or was killed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import ConflictError, UnreachableError
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, node_of
from orchestrator.engine.observing.reconcile import reconcile
from orchestrator.engine.steps.boot import BOOT
from orchestrator.engine.steps.reaching import reach

if TYPE_CHECKING:
    from orchestrator.app.root import App

_LOOKERS = timedelta(seconds=1)
_FIRST = timedelta(milliseconds=100)
_LONGEST = timedelta(seconds=3)


def await_machine(app: App, record: RunRecord, node: int = 0) -> Machine:
    """Return a run's machine once it has booted; if a launch is acting on it, that launch completes the boot.

    Args:
        app: for the ledger and the provider.
        record: the run.
        node: the machine's rank.

    Raises:
        UnreachableError: the run has no machine, or none that can be reached.
    """
    waited: list[str] = []

    def look() -> Machine | None:
        try:
            with app.ledger.lock(record.run_id, wait=_LOOKERS):
                return _reach(app, record, node)
        except ConflictError:
            if not waited:
                waited.append(record.run_id)
                app.tell(f"another command is at work on run {record.run_id}: waiting for its machine")
            return None

    machine = poll_until(look, BOOT, app.clock, first=_FIRST, longest=_LONGEST)
    if machine is None:
        raise _unreachable(record)
    return machine


def _reach(app: App, record: RunRecord, node: int) -> Machine:
    world = app.world(record.spec.provider)
    machines = app.ledger.machines(record.run_id, live_only=True)
    if not machines and record.stage is RunStage.LIVE:
        # The launch may have died before it could record what it had created.
        reconcile(world, record.run_id)
        machines = app.ledger.machines(record.run_id, live_only=True)
    found = node_of(machines, node)
    if found is None:
        raise _without(record, node, machines) if machines else _unreachable(record)
    return reach(world, found, app.tell)


def _without(record: RunRecord, node: int, machines: Sequence[Machine]) -> UnreachableError:
    return UnreachableError(
        f"node {node} of run {record.run_id} has no machine",
        why=f"nodes with a machine: {', '.join(str(rank) for rank in sorted({each.rank for each in machines}))}",
        fix=f"see `kedge status {record.run_id}`; `kedge resume {record.run_id}` replaces lost machines",
    )


def _unreachable(record: RunRecord) -> UnreachableError:
    return UnreachableError(
        f"run {record.run_id} has no machine that can be reached",
        why="it was torn down, it ended itself, or it has not booted",
        fix=f"see `kedge status {record.run_id}`; `kedge resume {record.run_id}` gives it a machine",
    )
