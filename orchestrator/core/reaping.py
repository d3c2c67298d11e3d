"""What is to be reaped, as a pure function of what a provider has and what the ledger knows.

A run that the ledger has is this computer's. Its machine is ended when it is past its deadline, when the run is over,
when its end was begun, when it is powered off and bills all the same, or when the launch that made it died before it
was of use to anybody; what else a run has goes when the run is over. While another command is at work on the run, its
machine is ended only long past its deadline. Of another computer's run only machines past their deadline are ended:
nobody here knows more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.report import RunState
from orchestrator.core.sweep import Leftover
from orchestrator.core.units import format_duration

ENDS_ITSELF = timedelta(minutes=5)
"""After its deadline a machine first checkpoints, ships, and ends by its own means; so long is it left to them."""

OVERSTAYS = timedelta(hours=1)
"""So long after its deadline a machine is ended although a command is at work on its run: what that command waits for
may be the machine's own doing, such as results that come a byte at a time."""

_FOREIGN = "of a run that this computer doesn't know"


class Step(StrEnum):
    """What is done about a finding."""

    END = "end"
    """Destroy the machine, and wait until its provider says that it is gone."""
    RELEASE = "release"
    """Remove what the run has besides machines."""
    SETTLE = "settle"
    """Bring the ledger into agreement with the provider."""
    LEAVE = "leave"
    """Nothing: `why` says what speaks against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that shouldn't be as it is.

    Attributes:
        what: its kind and name.
        age: None where nobody knows.
        usd_per_hour: what it bills.
        why: why it is to go, or why it is left.
    """

    what: str
    run_id: str
    own: bool
    provider: str
    region: str
    age: timedelta | None
    usd_per_hour: Decimal
    why: str
    step: Step
    bills: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the ledger's intents tell of a run's machines, each by its id.

    Attributes:
        created: this computer was about to create them.
        used: a command was about to be started on them, or they start it by themselves, or they were handed over.
        ending: this computer was about to end them.
        last_was_end: the newest intent of all was to end a machine.
    """

    created: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    last_was_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """A run, as its provider and the ledger have it.

    Attributes:
        record: the ledger's; None for a run that it doesn't have.
        machines: at the provider, not gone.
        recorded: those of the ledger's that it holds to be alive.
        leftovers: what the run has besides.
        interrupted: what was begun and never settled.
        deadlines: of all machines that it has, or has had as far as the ledger knows.
        busy: another command is at work on it.
        bills_when_off: its provider bills a machine that is powered off like one that runs.
        mark: the ledger's mark of the run when this was seen.
    """

    run_id: str
    provider: str
    record: RunRecord | None = None
    machines: tuple[Machine, ...] = ()
    recorded: tuple[Machine, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    history: History = field(default_factory=History)
    interrupted: tuple[str, ...] = ()
    deadlines: tuple[datetime, ...] = ()
    busy: bool = False
    bills_when_off: bool = False
    mark: int = 0

    @property
    def is_live(self) -> bool:
        """The ledger has it, and it isn't closed."""
        return self.record is not None and self.record.stage is RunStage.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaping:
    """What is to be done about one run.

    Attributes:
        seen: the run.
        ends: machines to destroy.
        closes: nothing of it is to be left.
    """

    seen: RunSeen
    findings: tuple[Finding, ...]
    ends: tuple[Machine, ...] = ()
    closes: bool = False

    @property
    def acts(self) -> bool:
        """There is something to be done."""
        return any(finding.step is not Step.LEAVE for finding in self.findings)


def plan_reaping(seen: RunSeen, now: datetime, *, everyone: bool) -> Reaping:
    """Say what of a run is to be ended, and why.

    Args:
        seen: the run.
        now: the present instant.
        everyone: end machines of other computers' runs, too.
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
    """Return what is to be done about a machine, and why; no reason where it is as it should be."""
    late = now - machine.deadline_at
    if timedelta(0) <= late < ENDS_ITSELF:
        return Step.LEAVE, "past its deadline: it has a few minutes to end itself"
    why = f"past its deadline by {format_duration(late)}" if late >= ENDS_ITSELF else ""
    if seen.record is None:
        return _judge_foreign(why, everyone=everyone)
    if seen.busy and late < OVERSTAYS:
        return Step.LEAVE, f"{why}, but another command is at work on its run" if why else ""
    why = why or _why_useless(seen, machine)
    return (Step.END, why) if why else (Step.LEAVE, "")


def _judge_foreign(why: str, *, everyone: bool) -> tuple[Step, str]:
    if everyone:
        return (Step.END, why) if why else (Step.LEAVE, "")
    return Step.LEAVE, f"{why}; --all ends it" if why else f"{_FOREIGN}, within its deadline"


def _why_useless(seen: RunSeen, machine: Machine) -> str:
    if not seen.is_live:
        return "its run is closed"
    if machine.id in seen.history.ending:
        return "its end was begun"
    if machine.id in seen.history.created - seen.history.used:
        return "its launch ended before the command was started"
    if seen.bills_when_off and machine.state is MachineState.ENDING:
        return "it is powered off, and bills all the same"
    return ""


def _why_over(seen: RunSeen, now: datetime) -> str:
    """Say why a run of which no machine is to be left is over; empty for one that may be gone on with."""
    if seen.record is None:
        return "its last machine is past its deadline" if seen.machines else ""
    if not seen.is_live:
        return "its run is closed"
    if seen.busy:
        return ""
    until = seen.record.spec.until or max(seen.deadlines, default=None)
    if until is not None and now >= until + ENDS_ITSELF:
        return "the time of its run is over"
    return "" if seen.record.spec.recover else _why_given_up(seen, seen.record)


def _why_given_up(seen: RunSeen, record: RunRecord) -> str:
    if seen.history.last_was_end:
        return "its end was begun"
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
    """Name what goes with a run that is over, and what bills although no machine of an unknown run has it."""
    unkept = [left for left in seen.leftovers if not left.kept]
    if over:
        return [_leftover_finding(seen, left, now, Step.RELEASE, over) for left in unkept]
    if seen.record is not None or seen.machines:
        return ()
    why = f"{_FOREIGN}, and no machine has it: delete it at {seen.provider} unless that run goes on"
    return [_leftover_finding(seen, left, now, Step.LEAVE, why) for left in unkept if left.usd_per_hour]


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
    """Name the ledger's entries that aren't as the provider has it; that settles nothing that bills."""
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
