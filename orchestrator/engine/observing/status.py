"""The status of runs: what the ledger, the provider and the machine say, compared."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.job import Job
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.report import FreshStart, MachineReport
from orchestrator.core.protocol.task_folder import folder_of
from orchestrator.core.values.units import format_duration
from orchestrator.engine.observing.modes import record_reported_modes
from orchestrator.engine.observing.observe import head_reports
from orchestrator.engine.observing.questions import EarlyQuestions, MachineAnswer
from orchestrator.engine.observing.reconcile import note_outcome
from orchestrator.engine.observing.recorded import RunStatus, recorded_status
from orchestrator.engine.observing.settling import SettledRun, settle_runs
from orchestrator.engine.observing.uploads import read_uploads
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRuns:
    """What runs do, according to ledger, providers and machines.

    Attributes:
        statuses: group by group.
        unrecorded: machines at a provider that belong to no live run.
        errors: of the providers that could not be asked, by their names; their runs have a finding about it.
    """

    statuses: tuple[RunStatus, ...]
    unrecorded: tuple[Machine, ...] = ()
    errors: Mapping[str, KedgeError] = field(default_factory=dict)


def observe_runs(groups: Iterable[tuple[World, Sequence[RunRecord]]]) -> ObservedRuns:
    """Observe runs at their providers and on their machines, and reconcile the ledger with that.

    All providers are asked at once, and at the same time all machines to which a connection is open; then the other
    machines. If it is one run and its machine doesn't answer, the states of its tasks come from the object store.

    Args:
        groups: each provider with its runs; one without runs is asked for machines of no live run.
    """
    questions = EarlyQuestions()
    settled = settle_runs(groups, questions.ask)
    answers = iter(questions.ask_rest([(run.world, machine) for run in settled.runs for machine in run.machines]))
    found = [_conclude(run, list(islice(answers, len(run.machines)))) for run in settled.runs]
    if len(found) == 1:
        found = [_with_uploaded(settled.runs[0].world, found[0])]
    return ObservedRuns(statuses=tuple(found), unrecorded=settled.unrecorded, errors=settled.errors)


def _with_uploaded(world: World, status: RunStatus) -> RunStatus:
    """Add the states of named tasks from the object store, if no machine answers."""
    if status.report is not None or not any(task.name for task in status.record.spec.job.tasks):
        return status
    try:
        last = read_uploads(world, status.record.run_id).last
    except UnreachableError:
        return status
    return replace(status, uploaded=last.tasks) if last is not None else status


def _conclude(run: SettledRun, answers: Sequence[MachineAnswer]) -> RunStatus:
    world, record = run.world, run.record
    reports = [answer.report for answer in answers if answer.report]
    of_heads = head_reports(run.machines, reports)
    for report in of_heads:
        record_reported_modes(world, report)
        record = world.ledger.run(record.run_id) or record
        state, is_present = report.command.state, report.sequence == record.spec.sequence
        if is_present and state.is_over and state != record.outcome:
            note_outcome(world, record.run_id, report.command)
    settled = world.ledger.run(record.run_id) or record
    head = next(iter(of_heads), None)
    recorded = recorded_status(world.ledger, settled, world.clock.now(), state=str(head.command.state) if head else "")
    stalled = {report.machine: _stalled(record.spec.job, report) for report in reports}
    silent = (line for found in stalled.values() for line in _describe_stalled(record.run_id, found))
    return replace(
        recorded,
        machines=run.machines,
        results_wait=recorded.results_wait and bool(reports or world.store),
        report=head,
        reports=tuple(reports),
        stalled=stalled[head.machine] if head is not None else {},
        findings=(
            *run.findings,
            *(answer.problem for answer in answers if answer.problem),
            *_without_heartbeat(reports),
            *dict.fromkeys(silent),
            *_begun_anew(reports, run.machines),
            *(_left_to_end(world) if run.machines else ()),
        ),
    )


def _left_to_end(world: World) -> tuple[str, ...]:
    """Say what will end a machine that doesn't end itself."""
    return () if world.provider.ends_by_itself else world.provider.caveats


def _stalled(job: Job, report: MachineReport) -> dict[str, timedelta]:
    """Return for how long tasks hang, which cost as much as working ones."""
    first_steps = {task.name: task.expect.first_step for task in job.tasks}
    found = {
        name: stalled_for(task, report.now, first_steps.get(name) or job.expect.first_step)
        for name, task in report.each_task.items()
    }
    return {name: silence for name, silence in found.items() if silence is not None}


def _describe_stalled(run: str, stalled: Mapping[str, timedelta]) -> list[str]:
    return [
        f"{_name(task)} has written nothing for {format_duration(silence)}: no log, no status.json, no checkpoint; "
        f"look at it with `kedge logs {_words(run, task)}`, or start it again with `kedge stop {_words(run, task)}` "
        f"and `kedge start{_words('', task)}`"
        for task, silence in stalled.items()
    ]


def _name(task: str) -> str:
    return f"task {task}" if task else "the command"


def _words(run: str, task: str) -> str:
    return f"{run} --task {task}" if task else run


def _begun_anew(reports: list[MachineReport], machines: Sequence[Machine]) -> list[str]:
    """Report commands that started from scratch instead of resuming, which costs the earlier work once more."""
    roots = {machine.id: machine.root for machine in machines}
    return [
        f"{f'task {name}' if name else 'it'} seems to have started over: {task.anew}; "
        + _way_back(report, name, task.anew, roots[report.machine])
        for report in reports
        for name, task in report.each_task.items()
        if task.anew is not None and report.machine in roots
    ]


def _way_back(report: MachineReport, task: str, anew: FreshStart, root: str) -> str:
    run = report.run
    resume = "give the job a `resume` (docs/your-script.md), and"
    start = f"`kedge start {_words(run, task)} --reread`"
    if not anew.kept:
        return f"`kedge stop {_words(run, task)}`, {resume} {start}"
    results, folder = f"{root}/results", folder_of(task, sequence=report.sequence, mode=report.mode)
    copy = shlex.join(["cp", "-r", f"{results}/{folder.kept}/{anew.kept}", f"{results}/{folder.checkpoints}/"])
    return (
        f"the older one is kept. to go back to it: `kedge stop {_words(run, task)}`, `kedge exec {run} -- {copy}`, "
        f"{resume} {start}"
    )


def _without_heartbeat(reports: list[MachineReport]) -> list[str]:
    """Report agents without a recent heartbeat, which can't end their machine or upload results."""
    late = 60.0
    return [
        f"the agent on {report.machine} has had no heartbeat for {report.now - report.heartbeat:.0f} s"
        for report in reports
        if report.heartbeat and report.now - report.heartbeat > late
    ]
