"""Records the modes that a run's machine has begun by itself, after those that the laptop had started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from orchestrator.core.errors import ConflictError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.modes import enter_next_mode, leave_mode
from orchestrator.core.protocol.report import Command, MachineReport, ModeReport
from orchestrator.engine.observing.uploads import read_uploads
from orchestrator.engine.world import World


def record_reported_modes(world: World, report: MachineReport) -> None:
    """Record the modes that a report tells of; another command that is acting on the run does that by itself."""
    if is_behind(world, report.run, report.sequence):
        with suppress(ConflictError), world.ledger.lock(report.run):
            record_modes(world, report.run, report.sequence, report.earlier)


def record_uploaded_modes(world: World, run_id: str) -> None:
    """Record the modes that the object store tells of; the caller holds the run's lock."""
    record = world.ledger.run(run_id)
    if record is not None and record.spec.later and (last := read_uploads(world, run_id).last) is not None:
        record_modes(world, run_id, last.sequence, last.earlier)


def is_behind(world: World, run_id: str, sequence: int) -> bool:
    """Tell whether a run's machine has gone on to a mode that isn't recorded as the present one yet."""
    record = world.ledger.run(run_id)
    return record is not None and bool(record.spec.later) and record.spec.sequence < sequence


def record_modes(world: World, run_id: str, sequence: int, earlier: Sequence[ModeReport]) -> None:
    """Record that the run is in a later mode, and how those before it have ended; the caller holds the run's lock.

    Args:
        world: the run's ports.
        run_id: the run.
        sequence: of the present mode.
        earlier: how the modes before it have ended, according to the machine.
    """
    record = world.ledger.run(run_id)
    if record is None or record.stage is not RunStage.LIVE:
        return
    spec, ends = record.spec, {each.sequence: each.command for each in earlier}
    while spec.later and spec.sequence < sequence:
        spec = _enter_next(world, spec, ends.get(spec.sequence))
    if spec != record.spec:
        world.ledger.open_run(spec, world.clock.now())


def _enter_next(world: World, spec: LaunchSpec, end: Command | None) -> LaunchSpec:
    now = world.clock.now()
    began = spec.mode_since or _began(world, spec)
    at = now if end is None else min(now, max(began, datetime.fromtimestamp(end.since, tz=now.tzinfo)))
    outcome = str(end.state) if end is not None else "succeeded"
    left = leave_mode(spec, outcome, world.ledger.rentals(spec.run_id), at)
    return enter_next_mode(spec, left, at)


def _began(world: World, spec: LaunchSpec) -> datetime:
    """Return when a run began."""
    record = world.ledger.run(spec.run_id)
    return record.created_at if record is not None else world.clock.now()


def hide_other_mode(report: MachineReport, spec: LaunchSpec) -> MachineReport:
    """Return a machine's report without tasks if they are those of another mode than the run's."""
    if report.sequence == spec.sequence:
        return report
    return msgspec.structs.replace(
        report, command=Command(), progress=None, checkpoint=None, advanced=0.0, anew=None, tasks={}
    )
