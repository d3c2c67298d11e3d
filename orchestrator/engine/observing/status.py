"""The status of runs: what the ledger, the provider and the machine say, compared."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from orchestrator.core.errors import ConflictError
from orchestrator.core.job import Expect
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.report import FreshStart, MachineReport
from orchestrator.core.values.units import format_duration
from orchestrator.engine.observing.observe import MachineAnswer
from orchestrator.engine.observing.questions import ask_each
from orchestrator.engine.observing.reconcile import differences, note_outcome, reconcile
from orchestrator.engine.observing.recorded import RunStatus, recorded_status, results_wait
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A run according to ledger and provider, before its machines are asked."""

    world: World
    recorded: RunStatus
    findings: tuple[str, ...]

    @property
    def questions(self) -> list[tuple[World, Machine]]:
        return [(self.world, machine) for machine in self.recorded.machines]


def observed_statuses(runs: Sequence[tuple[World, RunRecord]]) -> tuple[RunStatus, ...]:
    """Observe the runs at their providers and on their machines, and reconcile the ledger with that.

    The machines of all runs are asked at once. Ledger and providers are used by the calling thread only.
    """
    seen = [_look(world, record) for world, record in runs]
    answers = iter(ask_each([each for run in seen for each in run.questions]))
    return tuple(_conclude(run, list(islice(answers, len(run.questions)))) for run in seen)


def _look(world: World, record: RunRecord) -> _Seen:
    findings = _reconcile_unless_busy(world, record.run_id)
    recorded = recorded_status(world.ledger, world.ledger.run(record.run_id) or record, world.clock.now())
    machines = tuple(world.provider.describe(machine.id) or machine for machine in recorded.machines)
    return _Seen(world=world, recorded=replace(recorded, machines=machines), findings=findings)


def _conclude(seen: _Seen, answers: Sequence[MachineAnswer]) -> RunStatus:
    world, record = seen.world, seen.recorded.record
    reports = [answer.report for answer in answers if answer.report]
    for report in reports:
        if report.command.state.is_over and report.command.state != record.outcome:
            note_outcome(world, record.run_id, report.command)
    settled = world.ledger.run(record.run_id) or record
    return replace(
        seen.recorded,
        results_wait=results_wait(world.ledger, settled) and bool(reports or world.store),
        report=reports[0] if reports else None,
        findings=(
            *seen.findings,
            *(answer.problem for answer in answers if answer.problem),
            *_without_heartbeat(reports),
            *_stalled(reports, record.spec.job.expect),
            *_begun_anew(reports, seen.recorded.machines),
            *(_left_to_end(world) if seen.recorded.machines else ()),
        ),
    )


def _left_to_end(world: World) -> tuple[str, ...]:
    """Say what will end a machine that doesn't end itself."""
    return () if world.provider.ends_by_itself else world.provider.caveats


def _reconcile_unless_busy(world: World, run_id: str) -> tuple[str, ...]:
    try:
        with world.ledger.lock(run_id):
            return reconcile(world, run_id)
    except ConflictError:
        return ("another kedge command is at work on this run", *differences(world, run_id))


def _stalled(reports: list[MachineReport], expect: Expect) -> list[str]:
    """Report commands that hang, which cost as much as working ones."""
    return [
        f"the command has written nothing for {format_duration(silence)}: no log, no status.json, no checkpoint; "
        f"look at it with `kedge logs {report.run}`, or start it again with `kedge stop {report.run}` and `kedge start`"
        for report in reports
        if (silence := stalled_for(report, expect))
    ]


def _begun_anew(reports: list[MachineReport], machines: Sequence[Machine]) -> list[str]:
    """Report commands that started from scratch instead of resuming, which costs the earlier work once more."""
    roots = {machine.id: machine.root for machine in machines}
    return [
        f"it seems to have started over: {report.anew}; {_way_back(report.run, report.anew, roots[report.machine])}"
        for report in reports
        if report.anew is not None and report.machine in roots
    ]


def _way_back(run: str, anew: FreshStart, root: str) -> str:
    resume = "give the job a `resume` (docs/your-script.md), and"
    if not anew.kept:
        return f"`kedge stop {run}`, {resume} `kedge start {run} --reread`"
    results = f"{root}/results"
    copy = shlex.join(["cp", "-r", f"{results}/checkpoints.kept/{anew.kept}", f"{results}/checkpoints/"])
    return (
        f"the older one is kept. to go back to it: `kedge stop {run}`, `kedge exec {run} -- {copy}`, {resume} "
        f"`kedge start {run} --reread`"
    )


def _without_heartbeat(reports: list[MachineReport]) -> list[str]:
    """Report agents without a recent heartbeat, which can't end their machine or upload results."""
    late = 60.0
    return [
        f"the agent on {report.machine} has had no heartbeat for {report.now - report.heartbeat:.0f} s"
        for report in reports
        if report.heartbeat and report.now - report.heartbeat > late
    ]
