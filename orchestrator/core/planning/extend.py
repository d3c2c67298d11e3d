"""Plans a move of a run's deadline: of all its machines, or of none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import ExtendDeadline
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.plan import Observed, Plan
from orchestrator.core.planning.price import SHORTEST, extend_fix, refuse_over_budget
from orchestrator.core.protocol.report import DEADLINE, MachineReport
from orchestrator.core.values.cost import price_usd
from orchestrator.core.values.deadlines import MovedDeadline, MovedRun, RunDeadline
from orchestrator.core.values.units import format_duration

_SAME = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What was asked for: a time to add to the deadline, or the new deadline; one of them is given."""

    by: timedelta | None = None
    until: datetime | None = None

    def apply(self, deadline_at: datetime) -> datetime:
        """Return the new deadline in place of an old one."""
        return deadline_at + self.by if self.by is not None else self.until or deadline_at


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen:
    """A machine of the run at its provider, and its own report; `problem` says why there is none."""

    machine: Machine
    report: MachineReport | None = None
    problem: str = ""

    @property
    def is_leaving(self) -> bool:
        """Tell whether it is ending, or about to be reclaimed: its deadline doesn't matter any more."""
        return self.machine.state is MachineState.ENDING or (self.report is not None and self.report.notice > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinesSeen:
    """What a move is planned from.

    Attributes:
        machines: those of the run that aren't gone.
        spent_usd: what the run has cost so far.
        caveats: the provider's remarks about its machines.
        revision: the ledger's revision of the run at the time of the observation.
    """

    now: datetime
    machines: tuple[MachineSeen, ...]
    spent_usd: Decimal = Decimal(0)
    caveats: tuple[str, ...] = ()
    revision: int = 0


def plan_extension(spec: LaunchSpec, seen: DeadlinesSeen, move: Move) -> Plan:
    """Plan to move the deadline of every machine of the run, and the one deadline of a recovered run.

    Raises:
        BadRequestError: the run has nothing with a deadline, the new one is over, or a machine can't move its own.
        UnreachableError: a machine doesn't answer.
        OverBudgetError: until the new deadline the run can cost more than its budget.
    """
    there = [each for each in seen.machines if not each.is_leaving]
    for each in there:
        _refuse_unmovable(each)
    if not there:
        _refuse_without_machine(spec, seen)
    moved = tuple(_move(each.machine, move) for each in there)
    run = _move_run(spec, seen.now, move)
    latest = max([*(each.after for each in moved), *([run.after.until] if run is not None else [])])
    _refuse_over(min([each.after for each in moved], default=latest), seen.now)
    action = ExtendDeadline(
        run_id=spec.run_id,
        machines=moved,
        run=run,
        by=move.by,
        worst_usd=seen.spent_usd + _worst_usd(there, moved, seen.now),
    )
    rate = sum((each.usd_per_hour for each in moved), Decimal(0))
    plan = Plan(
        run_id=spec.run_id,
        actions=(action,) if _changes(action) else (),
        usd_per_hour=rate,
        most_usd_per_hour=rate,
        worst_usd=action.worst_usd,
        budget_usd=spec.job.budget_usd,
        deadline_at=latest,
        basis="prices: those of the run's machines",
        notes=_notes(spec, seen, action),
        revision=seen.revision,
    )
    refuse_over_budget(
        plan, fix=f"move it by less, or raise the limit, as in `kedge extend {spec.run_id} ... --budget USD`"
    )
    return plan


def deadline_notes(run_id: str, job: Job, observed: Observed, machine: Machine) -> tuple[str, ...]:
    """Note that a command is expected to take longer than its existing machine lives.

    Nothing is noted of a run that has results: it has less to do than a whole one.
    """
    usual = observed.usual_durations.get(observed.machine_type)
    expected, left = usual or job.expect.duration, machine.deadline_at - observed.now
    if expected is None or observed.has_results or expected <= left:
        return ()
    said = f"it is expected to take {format_duration(expected)}, but its machine is gone in {format_duration(left)}"
    return (f"{said}: {extend_fix(run_id, expected - left)}",)


def _move(machine: Machine, move: Move) -> MovedDeadline:
    return MovedDeadline(
        machine_id=machine.id,
        before=machine.deadline_at,
        after=move.apply(machine.deadline_at),
        usd_per_hour=machine.usd_per_hour,
    )


def _move_run(spec: LaunchSpec, now: datetime, move: Move) -> MovedRun | None:
    """Move a recovered run's own deadline; a machine that replaces a lost one may then live as long."""
    if spec.until is None:
        return None
    limit, until = spec.job.time_limit, move.apply(spec.until)
    return MovedRun(
        before=RunDeadline(until=spec.until, time_limit=limit),
        after=RunDeadline(until=until, time_limit=max(limit, until - now)),
    )


def _worst_usd(there: Sequence[MachineSeen], moved: Sequence[MovedDeadline], now: datetime) -> Decimal:
    """Return what the machines can cost from now on: until the deadline, or for the time that is billed at least."""
    return sum(
        (
            price_usd(
                after.usd_per_hour,
                max(after.after - now, each.machine.created_at + each.machine.billed_for_at_least - now),
            )
            for each, after in zip(there, moved, strict=True)
        ),
        Decimal(0),
    )


def _changes(action: ExtendDeadline) -> bool:
    moves = [each.after - each.before for each in action.machines]
    if action.run is not None:
        moves.append(action.run.after.until - action.run.before.until)
    return any(abs(each) >= _SAME for each in moves)


def _notes(spec: LaunchSpec, seen: DeadlinesSeen, action: ExtendDeadline) -> tuple[str, ...]:
    if not _changes(action):
        return ("its deadline is there already",)
    notes = []
    if any(each.after < each.before for each in action.machines):
        notes.append("this shortens the run's time: its command is stopped before the new deadline, and checkpoints")
    if spec.until is not None:
        notes.append("a machine that replaces a lost one ends at the new deadline, too")
    if spec.job.budget_usd is None:
        notes.append("no budget is set (--budget refuses what may cost more)")
    if spec.job.tasks and action.machines:
        notes.append("the command reads the new deadline in $KEDGE_DEADLINE_FILE; $KEDGE_DEADLINE is that of its start")
    return (*notes, *(seen.caveats if action.machines else ()))


def _refuse_unmovable(seen: MachineSeen) -> None:
    machine, report = seen.machine, seen.report
    if machine.state is MachineState.BOOTING or (report is None and not machine.has_booted):
        raise BadRequestError(
            f"machine {machine.id} is still booting: its deadline can't be moved yet",
            fix=f"try again once `kedge status {machine.run_id}` shows its command",
        )
    if report is None or machine.state is not MachineState.READY:
        raise UnreachableError(
            f"the deadline of machine {machine.id} can't be moved; nothing was changed",
            why=seen.problem or f"its provider says that it is {machine.state}",
            fix=f"look at it with `kedge status {machine.run_id}`",
        )
    if report.command.reason == DEADLINE and (report.command.met_deadline or report.command.state.is_live):
        raise BadRequestError(
            f"machine {machine.id} is ending at its deadline already: its command was asked to checkpoint and exit",
            fix=f"go on with another machine once it is gone: `kedge resume {machine.run_id} --ttl 2h`",
        )
    if not report.extends:
        raise BadRequestError(
            f"machine {machine.id} can't move its deadline; nothing was changed",
            why="its agent is of an earlier version of kedge",
            fix=f"after its deadline, go on with another machine: `kedge resume {machine.run_id} --ttl 2h`",
        )


def _refuse_without_machine(spec: LaunchSpec, seen: DeadlinesSeen) -> None:
    """Refuse a run without a machine, unless it is recovered: such a run has a deadline of its own."""
    if spec.until is not None:
        return
    leaving = ", ".join(each.machine.id for each in seen.machines)
    raise BadRequestError(
        f"run {spec.run_id} has no machine whose deadline could be moved",
        why=f"{leaving} is ending" if leaving else "",
        fix=f"give it one with `kedge resume {spec.run_id} --ttl 2h`",
    )


def _refuse_over(deadline_at: datetime, now: datetime) -> None:
    if deadline_at - now < SHORTEST:
        raise BadRequestError(
            f"the new deadline, {deadline_at:%F %H:%M} UTC, is too early",
            why=f"a machine needs {format_duration(SHORTEST)} to save its work and end itself",
            fix="choose a later one, or end the run with `kedge teardown`",
        )
