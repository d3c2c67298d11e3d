"""Decides what to reap: a pure function of what a provider has and what the ledger knows.

A run in the ledger is this computer's. Its machine is ended for any of these reasons:
- it is past its deadline, or its run is over;
- a command began to end it;
- it is powered off and still billed;
- the launch that created it died before the machine was of use;
- it can't end itself, and reports that its command is over and its results are in the object store.

The rest of a run is removed when the run is over. While another command is acting on the run, its machine is ended only
long after its deadline. Of other computers' runs, only machines past their deadline are ended, because nothing more is
known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.policy.findings import Finding, Reaping, RunSeen, Step
from orchestrator.core.protocol.report import MachineReport, RunState
from orchestrator.core.sweep import Leftover
from orchestrator.core.values.units import format_duration

ENDS_ITSELF = timedelta(minutes=5)
"""Grace period after the deadline, for a machine to checkpoint, upload, and end itself. The same time is given after
the end of a command, for fetching its results."""

OVERSTAYS = timedelta(hours=1)
"""A machine that is this long past its deadline is ended even if a command is acting on its run. That command may be
waiting for the machine itself, for example for results that arrive a byte at a time."""

BOOTS = timedelta(hours=1)
"""Grace period for a machine to appear and read the secrets that were stored for it."""

_FOREIGN = "of a run that this computer doesn't know"


def plan_reaping(seen: RunSeen, now: datetime, *, everyone: bool) -> Reaping:
    """Decide what of a run to end, and why.

    Args:
        seen: the run.
        now: the present instant.
        everyone: also end machines of other computers' runs.
    """
    machines = [(machine, *_judge(seen, machine, now, everyone=everyone)) for machine in seen.machines]
    ends = tuple(machine for machine, step, _ in machines if step is Step.END)
    over = _why_over(seen, now) if len(ends) == len(seen.machines) else ""
    findings = (
        *(_machine_finding(seen, machine, now, step, why) for machine, step, why in machines if why),
        *_leftover_findings(seen, now, over),
        *_ledger_findings(seen, ends, over),
    )
    return Reaping(seen=seen, findings=findings, ends=ends, closes=bool(over))


def _judge(seen: RunSeen, machine: Machine, now: datetime, *, everyone: bool) -> tuple[Step, str]:
    """Return what to do about a machine, and why; the reason is empty if the machine is as it should be."""
    late = now - machine.deadline_at
    if timedelta(0) <= late < ENDS_ITSELF:
        return Step.LEAVE, "past its deadline: it has a few minutes to end itself"
    why = f"past its deadline by {format_duration(late)}" if late >= ENDS_ITSELF else ""
    if seen.record is None:
        return _judge_foreign(why, everyone=everyone)
    if seen.busy and late < OVERSTAYS:
        return Step.LEAVE, f"{why}, but another command is at work on its run" if why else ""
    why = why or _why_useless(seen, machine)
    return (Step.END, why) if why else _judge_by_report(seen, machine, seen.record, now)


def _judge_foreign(why: str, *, everyone: bool) -> tuple[Step, str]:
    if everyone:
        return (Step.END, why) if why else (Step.LEAVE, "")
    return Step.LEAVE, f"{why}; --all ends it" if why else f"{_FOREIGN}, within its deadline"


def _why_useless(seen: RunSeen, machine: Machine) -> str:
    if not seen.is_live:
        return "its run is closed"
    if machine.id in seen.history.ending:
        return "a command began to end it"
    if seen.bills_when_off and machine.state is MachineState.ENDING:
        return "it is powered off, and still bills"
    return _why_incomplete(seen, machine)


def _why_incomplete(seen: RunSeen, machine: Machine) -> str:
    """Say what a machine's run lacks, so that the machine is of no use: a start, or its head."""
    unused = seen.history.created - seen.history.used
    if machine.id in unused:
        return "its launch ended before the command was started"
    if seen.record and seen.record.spec.job.num_nodes > 1 and any(each.id in unused for each in seen.machines):
        return "its launch ended before the command was started on all machines"
    return "the head of its run is gone" if machine.rank and _has_lost_head(seen) else ""


def _has_lost_head(seen: RunSeen) -> bool:
    """Tell whether nothing replaces the head that several machines had: it was done and ended itself, or was lost."""
    recovers = seen.record is not None and seen.record.spec.recover and seen.record.outcome != RunState.SUCCEEDED
    return not recovers and all(machine.rank for machine in seen.machines)


def _judge_by_report(seen: RunSeen, machine: Machine, record: RunRecord, now: datetime) -> tuple[Step, str]:
    """Judge a machine that can't end itself as its agent would: its command is over, and its results are uploaded.

    A machine that is to be kept stays, and so does one whose command was stopped: somebody may start it again. Of
    several machines, all stay as long as the head's command runs.
    """
    report = seen.reports.get(machine.id)
    waits = machine.rank > 0 and any(not each.rank and not _is_done(seen, each) for each in seen.machines)
    over = "" if report is None or record.spec.keep or waits else _why_done(report)
    if report is None or not over or now.timestamp() - report.command.since < ENDS_ITSELF.total_seconds():
        return Step.LEAVE, ""
    if report.upload is not None and report.upload.time >= report.command.since:
        return Step.END, f"{over}, and its results are in the object store"
    only_there = "but its results are only on the machine"
    return Step.LEAVE, f"{over}, {only_there}: `kedge teardown {seen.run_id}` fetches them and ends it"


def _is_done(seen: RunSeen, machine: Machine) -> bool:
    return machine.id in seen.reports and bool(_why_done(seen.reports[machine.id]))


def _why_done(report: MachineReport) -> str:
    """Say how the command ended for good; empty if it didn't."""
    state = report.command.state
    return f"its command has {state}" if state in (RunState.SUCCEEDED, RunState.FAILED) else ""


def _why_over(seen: RunSeen, now: datetime) -> str:
    """Say why the run is over and needs no machine any more; empty if it can be resumed."""
    if seen.record is None:
        return "its last machine is past its deadline" if seen.machines else ""
    if not seen.is_live:
        return "its run is closed"
    if seen.busy:
        return ""
    until = seen.record.spec.until or max(seen.deadlines_at, default=None)
    if until is not None and now >= until + ENDS_ITSELF:
        return "the time of its run is over"
    # Of several machines, the head's command is the run's.
    heads = (seen.reports[machine.id] for machine in seen.machines if not machine.rank and machine.id in seen.reports)
    recovers = seen.record.spec.recover
    final = (report for report in heads if not (recovers and report.command.lost_peer))
    if done := next(filter(None, map(_why_done, final)), ""):
        return done
    return "" if seen.record.spec.recover else _why_given_up(seen, seen.record)


def _why_given_up(seen: RunSeen, record: RunRecord) -> str:
    if seen.history.last_was_end:
        return "a command began to end it"
    if record.outcome == RunState.SUCCEEDED:
        return "its command has succeeded"
    return "" if seen.history.used else "no command of its run was ever started"


def _machine_finding(seen: RunSeen, machine: Machine, now: datetime, step: Step, why: str) -> Finding:
    return Finding(
        what=f"machine {machine.id}",
        run_id=seen.run_id,
        own=seen.record is not None,
        provider=seen.provider,
        region=machine.region,
        age=now - machine.created_at,
        usd_per_hour=machine.usd_per_hour,
        why=why,
        step=step,
        bills=True,
    )


def _leftover_findings(seen: RunSeen, now: datetime, over: str) -> Sequence[Finding]:
    """List what is removed with a run that is over; of an unknown run without machines what bills, and its secrets."""
    unkept = [left for left in seen.leftovers if not left.kept]
    if over:
        return [_leftover_finding(seen, left, now, Step.RELEASE, over) for left in unkept]
    if seen.record is not None or seen.machines:
        return ()
    why = f"{_FOREIGN}, and no machine uses it: delete it at {seen.provider} unless that run goes on"
    named = (left for left in unkept if left.usd_per_hour or _is_forgotten_secret(left, now))
    return [_leftover_finding(seen, left, now, Step.LEAVE, why) for left in named]


def _is_forgotten_secret(left: Leftover, now: datetime) -> bool:
    return left.is_secret and left.created_at is not None and now - left.created_at >= BOOTS


def _leftover_finding(seen: RunSeen, left: Leftover, now: datetime, step: Step, why: str) -> Finding:
    return Finding(
        what=f"{left.kind} {left.name}",
        run_id=seen.run_id,
        own=seen.record is not None,
        provider=seen.provider,
        region=left.region,
        age=now - left.created_at if left.created_at else None,
        usd_per_hour=left.usd_per_hour,
        why=why,
        step=step,
        bills=left.usd_per_hour > 0,
    )


def _ledger_findings(seen: RunSeen, ends: Sequence[Machine], over: str) -> Sequence[Finding]:
    """List the ledger's entries that contradict the provider; correcting them ends nothing that bills."""
    if seen.record is None or seen.busy:
        return ()
    there = {machine.id for machine in seen.machines}
    known = {machine.id for machine in seen.recorded} | {machine.id for machine in ends}
    said = [(f"entry of machine {name}", f"it is gone at {seen.provider}") for name in sorted(known - there)]
    said += [(f"entry of machine {name}", "the ledger lacks it") for name in sorted(there - known)]
    if over and seen.is_live:
        said.append((f"entry of run {seen.run_id}", over))
    elif seen.interrupted:
        said.append((f"entry of run {seen.run_id}", f"a command died in {', '.join(seen.interrupted)}"))
    return [_ledger_finding(seen, what, why) for what, why in said]


def _ledger_finding(seen: RunSeen, what: str, why: str) -> Finding:
    return Finding(
        what=what,
        run_id=seen.run_id,
        own=True,
        provider=seen.provider,
        region="",
        age=None,
        usd_per_hour=Decimal(0),
        why=why,
        step=Step.SETTLE,
        bills=False,
    )
