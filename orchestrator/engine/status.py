"""What a run looks like now: the ledger, the provider and the machine side by side."""

from __future__ import annotations

from orchestrator.core.errors import ConflictError
from orchestrator.core.job import Expect
from orchestrator.core.ledger import RunRecord
from orchestrator.core.report import MachineReport
from orchestrator.core.stall import stalled_for
from orchestrator.core.units import format_duration
from orchestrator.engine.observe import question
from orchestrator.engine.reconcile import differences, note_outcome, reconcile
from orchestrator.engine.recorded import RunStatus, recorded_status
from orchestrator.engine.world import World


def observed_status(world: World, record: RunRecord) -> RunStatus:
    """Look at the provider and the machine as well; the ledger is brought into agreement with what was seen."""
    findings = _reconcile_unless_busy(world, record.run_id)
    now = world.clock.now()
    recorded = recorded_status(world.ledger, world.ledger.run(record.run_id) or record, now)
    machines = tuple(world.provider.describe(machine.id) or machine for machine in recorded.machines)
    answers = [question(world, machine) for machine in machines]
    reports = [answer.report for answer in answers if answer.report]
    for report in reports:
        if report.command.state.is_over and report.command.state != recorded.record.outcome:
            note_outcome(world, record.run_id, report.command)
    return RunStatus(
        record=recorded.record,
        now=recorded.now,
        machines=machines,
        spent_usd=recorded.spent_usd,
        report=reports[0] if reports else None,
        findings=(
            *findings,
            *(answer.problem for answer in answers if answer.problem),
            *_stale(reports),
            *_stalled(reports, record.spec.job.expect),
            *(_left_to_end(world) if machines else ()),
        ),
    )


def _left_to_end(world: World) -> tuple[str, ...]:
    """Say what is left to end a machine that doesn't end by itself."""
    return () if world.provider.ends_by_itself else world.provider.caveats


def _reconcile_unless_busy(world: World, run_id: str) -> tuple[str, ...]:
    try:
        with world.ledger.lock(run_id):
            return reconcile(world, run_id)
    except ConflictError:
        return ("another kedge command is at work on this run", *differences(world, run_id))


def _stalled(reports: list[MachineReport], expect: Expect) -> list[str]:
    """A command that hangs costs as much as one that trains."""
    return [
        f"the command has written nothing for {format_duration(silence)}: no log, no status.json, no checkpoint; "
        f"look at it with `kedge logs {report.run}`, or start it again with `kedge stop {report.run}` and `kedge start`"
        for report in reports
        if (silence := stalled_for(report, expect))
    ]


def _stale(reports: list[MachineReport]) -> list[str]:
    """An agent that doesn't go round any more can't keep its promises."""
    late = 60.0
    return [
        f"the agent on {report.machine} has not gone round for {report.now - report.heartbeat:.0f} s"
        for report in reports
        if report.heartbeat and report.now - report.heartbeat > late
    ]
