"""Finds out in which of several modes a run's machine is: it goes on to the next one by itself."""

from __future__ import annotations

from orchestrator.app.root import App
from orchestrator.core.errors import UnreachableError
from orchestrator.core.ledger import LOOK_WAIT, RunRecord, RunStage
from orchestrator.core.protocol.report import MachineReport
from orchestrator.engine.observing.modes import is_behind, record_modes
from orchestrator.engine.observing.observe import ask_machines, find_machines, head_reports
from orchestrator.engine.observing.uploads import read_uploads
from orchestrator.engine.world import World


def present_record(app: App, record: RunRecord) -> RunRecord:
    """Return the run in its machine's mode, or in the recorded one if neither provider nor object store answers.

    Raises:
        ConflictError: the machine has gone on, and another command is at work on the run.
    """
    if not record.spec.later or record.stage is not RunStage.LIVE:
        return record
    world = app.world(record.spec.provider)
    try:
        found = ask_head(world, record) or read_uploads(world, record.run_id).last
    except UnreachableError:
        return record
    if found is not None and is_behind(world, record.run_id, found.sequence):
        with app.ledger.lock(record.run_id, wait=LOOK_WAIT):
            record_modes(world, record.run_id, found.sequence, found.earlier)
    return app.named_run(record.run_id)


def ask_head(world: World, record: RunRecord) -> MachineReport | None:
    """Request the report of the run's head; None if it doesn't answer."""
    machines = find_machines(world, record.run_id)
    reports = ask_machines(world, machines, record.spec.job.num_nodes)
    return next(iter(head_reports(machines, reports)), None)
