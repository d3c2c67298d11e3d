"""Plans, as pure functions of what is wanted and what was observed.

`plan_launch` serves `launch` and `resume` alike: from what there is of the run it derives what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    FetchResults,
    FollowCommand,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StartCommand,
    StopCommand,
)
from orchestrator.core.cost import price_usd
from orchestrator.core.errors import BadRequestError, NoCapacityError, OverBudgetError
from orchestrator.core.job import AtEnd, Job, LaunchSpec, StartFrom
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.ports import CodeSummary
from orchestrator.core.report import MachineReport, RunState
from orchestrator.core.units import cents, format_duration, format_usd

_SHORTEST = timedelta(minutes=2)
"""What a machine that is made must at least have left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was seen of the world before planning.

    Attributes:
        offers: for sale now, in the order in which to try them; empty where no machine is to be created.
        offers_basis: where the prices come from: `live`, or a snapshot's date.
        machines: of this run, not gone, found at the provider.
        machines_before: how many this run has had, those that are gone included.
        report: of the run's ready machine; None where there is none or it doesn't answer.
        code: the laptop's; None where the job sends none.
        spent_usd: by this run's machines until now.
        usual_duration: of successful runs of this job and mode; None without any.
        boots_alone: the provider's machines can start the command by themselves.
        keeps_results: an object store keeps the results when the machine ends.
        results: the object store holds something to go on from.
        outcome: the command's last state that the object store or the ledger knows; None for none.
        mark: the ledger's mark of the run when this was seen.
    """

    now: datetime
    offers: tuple[Offer, ...] = ()
    offers_basis: str = "live"
    machines: tuple[Machine, ...] = ()
    machines_before: int = 0
    report: MachineReport | None = None
    code: CodeSummary | None = None
    spent_usd: Decimal = Decimal(0)
    usual_duration: timedelta | None = None
    boots_alone: bool = False
    keeps_results: bool = False
    results: bool = False
    outcome: RunState | None = None
    mark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An ordered list of actions with its price.

    Attributes:
        usd_per_hour: while the machine lives, at the first of the offers.
        most_usd_per_hour: at the dearest of them, which the worst case counts with.
        worst_usd: everything that the run can cost until its deadline, what it has cost already included.
        expected: how long it will take; None where nobody knows.
        basis: where the expectation and the prices come from.
        notes: what the user should know before saying yes, one line each.
        mark: of what was observed; when somebody has acted on the run since, the plan is not carried out.
    """

    run_id: str
    actions: tuple[Action, ...]
    usd_per_hour: Decimal = Decimal(0)
    most_usd_per_hour: Decimal = Decimal(0)
    worst_usd: Decimal = Decimal(0)
    expected: timedelta | None = None
    expected_usd: Decimal | None = None
    budget_usd: Decimal | None = None
    deadline_at: datetime | None = None
    basis: str = ""
    notes: tuple[str, ...] = field(default=())
    mark: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a launch does after it has started the command.

    Attributes:
        follow: show the log until the command is over; what comes after needs it.
        destination: where results go then; None fetches none.
    """

    follow: bool = True
    destination: str | None = None


def usable_machine(machines: tuple[Machine, ...], report: MachineReport | None) -> Machine | None:
    """Return the machine on which a run can go on; one that its provider is about to take away is none."""
    going = report.machine if report is not None and report.notice else ""
    states = (MachineState.BOOTING, MachineState.READY)
    return next((m for m in machines if m.state in states and m.id != going), None)


def lifetime_of(spec: LaunchSpec, now: datetime) -> timedelta:
    """Return how long a machine made now may live: to its deadline, or to the end of a run that is recovered.

    Raises:
        BadRequestError: the run's time is over.
    """
    if spec.until is None:
        return spec.job.deadline
    left = spec.until - now
    if left < _SHORTEST:
        raise BadRequestError(
            f"the time of run {spec.run_id} is over",
            why=f"the deadline of a run that is recovered is that of all its machines: {spec.until:%F %H:%M} UTC",
            fix=f"give it more with `kedge resume {spec.run_id} --ttl {format_duration(spec.job.deadline)}`",
        )
    return min(spec.job.deadline, left)


def plan_launch(spec: LaunchSpec, observed: Observed, ending: Ending) -> Plan:
    """Plan what is missing between what was observed and a run that is done.

    A machine that nobody can use, such as one whose creation is unclear, is ended before another is made.

    Raises:
        BadRequestError: the job can't end before its deadline.
        NoCapacityError: there is no offer.
        OverBudgetError: the worst case costs more than the budget.
    """
    machine = usable_machine(observed.machines, observed.report)
    unclear = tuple(DestroyMachine(machine_id=m.id) for m in observed.machines if m is not machine)
    if machine is None and observed.outcome is RunState.SUCCEEDED:
        return _plan_late_fetch(spec, observed, unclear, ending)
    if machine is None:
        observed = _within_budget(spec, observed)
        machine_id = f"{spec.run_id}-m{observed.machines_before + 1}"
        start = _plan_new_machine(spec, observed, machine_id)
        rate = observed.offers[0].total_usd_per_hour
        most = max(offer.worst_usd_per_hour for offer in observed.offers)
        deadline_at = observed.now + lifetime_of(spec, observed.now)
    else:
        machine_id = machine.id
        start = _plan_on_machine(spec.job, observed, machine)
        rate = most = machine.usd_per_hour
        deadline_at = machine.deadline_at
    actions = (*unclear, *start, *_plan_ending(spec, machine_id, ending))
    plan = _price(spec, observed, actions, (rate, most), deadline_at)
    _refuse_over_budget(plan)
    return plan


def plan_restart(run_id: str, job: Job, observed: Observed, *, send_code: bool) -> Plan:
    """Plan a start of the command on the machine that is there; one that is at work is stopped first."""
    machine = usable_machine(observed.machines, observed.report)
    if machine is None:
        raise BadRequestError(
            f"run {run_id} has no machine",
            fix=f"give it one with `kedge resume {run_id}`, which also starts it",
        )
    actions: list[Action] = [*plan_code(job, observed.code, machine.id)] if send_code else []
    state = observed.report.command.state if observed.report else RunState.IDLE
    if state.is_live:
        actions.append(StopCommand(machine_id=machine.id, restarts=True))
    actions.append(
        StartCommand(machine_id=machine.id, supervisor=job.supervisor.kind, resumes=state is not RunState.IDLE)
    )
    return Plan(run_id=run_id, actions=tuple(actions), mark=observed.mark)


def plan_teardown(run_id: str, observed: Observed, *, destination: str | None) -> Plan:
    """Plan the end of everything that a run has: stop, fetch, destroy.

    Args:
        run_id: the run.
        observed: what there is of it.
        destination: where results go; None fetches none.
    """
    actions: list[Action] = []
    report = observed.report
    if report is not None and report.command.state.is_live:
        actions.append(StopCommand(machine_id=report.machine))
    if destination is not None and observed.machines and (report is not None or observed.keeps_results):
        source = report.machine if report is not None else observed.machines[-1].id
        actions.append(FetchResults(machine_id=source, destination=destination))
    actions.extend(DestroyMachine(machine_id=machine.id) for machine in observed.machines)
    return Plan(
        run_id=run_id,
        actions=tuple(actions),
        worst_usd=observed.spent_usd,
        notes=_teardown_notes(observed),
        mark=observed.mark,
    )


def _plan_late_fetch(spec: LaunchSpec, observed: Observed, unclear: tuple[Action, ...], ending: Ending) -> Plan:
    """A run that has succeeded needs no machine: its results are in the store."""
    source = f"{spec.run_id}-m{observed.machines_before}"
    fetch = (FetchResults(machine_id=source, destination=ending.destination),) if ending.destination else ()
    return Plan(
        run_id=spec.run_id,
        actions=(*unclear, *fetch),
        worst_usd=observed.spent_usd,
        notes=("the run has succeeded already; nothing is rented for it",),
        mark=observed.mark,
    )


def _plan_new_machine(spec: LaunchSpec, observed: Observed, machine_id: str) -> tuple[Action, ...]:
    job = spec.job
    if not observed.offers:
        raise NoCapacityError(
            f"nothing fits {_describe_wishes(job)} at {spec.provider}",
            why="no offer has what the job's resources ask for",
            fix=f"see what there is with `kedge offers --provider {spec.provider}`",
        )
    starts = bool(job.run) and job.start is StartFrom.BOOT and observed.boots_alone
    lifetime = lifetime_of(spec, observed.now)
    create = CreateMachine(machine_id=machine_id, offers=observed.offers, lifetime=lifetime, starts=starts)
    boot: tuple[Action, ...] = (create, AwaitMachine(machine_id=machine_id))
    if starts:
        _refuse_unbootable(job)
        return (*_plan_staged_data(job, machine_id), _plan_staging(job, observed, machine_id), *boot)
    actions = [
        *boot,
        *plan_code(job, observed.code, machine_id),
        *_plan_data(job, machine_id),
    ]
    if job.run:
        kind = job.supervisor.kind
        actions.append(StartCommand(machine_id=machine_id, supervisor=kind, resumes=observed.results))
    return tuple(actions)


def _plan_staged_data(job: Job, machine_id: str) -> tuple[Action, ...]:
    """Before the code: the configuration that is staged with it names the data."""
    return tuple(StageData(machine_id=machine_id, mount=mount) for mount in job.data if not mount.is_fetched)


def _plan_staging(job: Job, observed: Observed, machine_id: str) -> StageCode:
    accelerators = observed.offers[0].accelerators
    return StageCode(
        machine_id=machine_id,
        source=_describe_code(job),
        files=observed.code.files if observed.code else 0,
        bytes=observed.code.bytes if observed.code else 0,
        gpus=accelerators.count if accelerators else 0,
    )


def _refuse_unbootable(job: Job) -> None:
    """Secrets aren't there yet when a machine starts by itself."""
    if job.secrets:
        raise BadRequestError(
            f"{job.name} can't start at boot: it needs the secret {job.secrets[0]}",
            why="that is sent over SSH, by this computer, and never lies in the user-data or in the bucket",
            fix="write `start: ssh`, or leave `start` out",
        )


def _plan_on_machine(job: Job, observed: Observed, machine: Machine) -> tuple[Action, ...]:
    report = observed.report
    actions: list[Action] = []
    if report is None:
        actions.append(AwaitMachine(machine_id=machine.id))
    state = report.command.state if report else RunState.IDLE
    if not job.run or state.is_live or state is RunState.SUCCEEDED:
        return tuple(actions)
    if report is None or observed.code is None or report.code != observed.code.hash:
        actions.extend(plan_code(job, observed.code, machine.id))
    actions.extend(_plan_data(job, machine.id))
    resumes = observed.results or state is not RunState.IDLE
    actions.append(StartCommand(machine_id=machine.id, supervisor=job.supervisor.kind, resumes=resumes))
    return tuple(actions)


def _plan_ending(spec: LaunchSpec, machine_id: str, ending: Ending) -> tuple[Action, ...]:
    if not spec.job.run or not ending.follow:
        return ()
    actions: list[Action] = [FollowCommand(machine_id=machine_id)]
    if ending.destination is not None:
        actions.append(FetchResults(machine_id=machine_id, destination=ending.destination))
    if not spec.keep:
        actions.append(DestroyMachine(machine_id=machine_id))
    return tuple(actions)


def plan_code(job: Job, code: CodeSummary | None, machine_id: str) -> tuple[Action, ...]:
    """Plan to bring a machine's code to the laptop's state; nothing for a job that sends none."""
    if code is None:
        return ()
    return (SendCode(machine_id=machine_id, source=_describe_code(job), files=code.files, bytes=code.bytes),)


def _plan_data(job: Job, machine_id: str) -> tuple[Action, ...]:
    """What the machine fetches by itself isn't sent."""
    return tuple(SendData(machine_id=machine_id, mount=mount) for mount in job.data if not mount.is_fetched)


def _describe_code(job: Job) -> str:
    parts = (job.workdir or "", "the bundled trainer" if job.bundled_trainer else "")
    return " + ".join(part for part in parts if part) or "no code"


def _within_budget(spec: LaunchSpec, observed: Observed) -> Observed:
    """Leave out the offers that could cost more than the budget; where all could, keep the cheapest, to be refused."""
    if spec.job.budget_usd is None or not observed.offers:
        return observed

    def worst_usd(offer: Offer) -> Decimal:
        return observed.spent_usd + price_usd(offer.worst_usd_per_hour, lifetime_of(spec, observed.now))

    budget = cents(spec.job.budget_usd)
    within = tuple(offer for offer in observed.offers if cents(worst_usd(offer)) <= budget)
    return replace(observed, offers=within or (min(observed.offers, key=worst_usd),))


def _price(
    spec: LaunchSpec,
    observed: Observed,
    actions: tuple[Action, ...],
    rates: tuple[Decimal, Decimal],
    deadline_at: datetime,
) -> Plan:
    left = max(timedelta(0), deadline_at - observed.now)
    expected, basis = _expectation(spec.job, observed)
    # A run that goes on has less to do than a whole one; how much less, nobody knows.
    if not observed.results and any(isinstance(action, CreateMachine) for action in actions):
        _refuse_too_short(spec.job, expected, left)
    return Plan(
        run_id=spec.run_id,
        actions=actions,
        usd_per_hour=rates[0],
        most_usd_per_hour=rates[1],
        worst_usd=observed.spent_usd + price_usd(rates[1], left),
        expected=expected,
        expected_usd=None if expected is None else price_usd(rates[0], expected),
        budget_usd=spec.job.budget_usd,
        deadline_at=deadline_at,
        basis=f"prices: {observed.offers_basis}; time: {basis}",
        notes=_launch_notes(spec, observed),
        mark=observed.mark,
    )


def _expectation(job: Job, observed: Observed) -> tuple[timedelta | None, str]:
    if observed.usual_duration is not None:
        return observed.usual_duration, "earlier runs of this job and mode"
    if job.expect.duration is not None:
        return job.expect.duration, "the job file's `expect`"
    return None, "unknown until a run has been measured"


def _refuse_too_short(job: Job, expected: timedelta | None, left: timedelta) -> None:
    if expected is not None and expected > left:
        raise BadRequestError(
            f"{job.name} is expected to take {format_duration(expected)}, but its machine is gone in "
            f"{format_duration(left)}",
            why="the deadline ends the machine whether the run is done or not",
            fix=f"give it more time, for example --ttl {format_duration(expected * 1.5).replace(' ', '')}",
        )


def _refuse_over_budget(plan: Plan) -> None:
    if plan.budget_usd is not None and cents(plan.worst_usd) > cents(plan.budget_usd):
        worst, budget = format_usd(plan.worst_usd), format_usd(plan.budget_usd)
        raise OverBudgetError(
            f"the worst case costs {worst}, over the budget of {budget}",
            why=f"{format_usd(plan.most_usd_per_hour)}/h until the deadline, with what the run has cost already",
            fix="shorten the deadline with --ttl, raise --budget, or choose a cheaper offer (`kedge offers`)",
        )


def _launch_notes(spec: LaunchSpec, observed: Observed) -> tuple[str, ...]:
    job = spec.job
    notes = []
    kept = [volume.name for volume in job.resources.volumes if volume.at_end is AtEnd.KEEP]
    if kept:
        notes.append(f"kept when the run is over, and billed on: {', '.join(kept)} (`at_end` says otherwise)")
    if job.budget_usd is None:
        notes.append("no budget is set: the deadline alone bounds the cost (--budget sets a cap)")
    if job.run and observed.keeps_results:
        notes.append("checkpoints and results are copied to the object store; the run outlives its machine")
    elif job.run:
        notes.append("results end with the machine: fetch them before the deadline")
    if job.run and spec.recover:
        notes.append("a machine that is lost is replaced while this command runs; the deadline is that of all together")
    elif job.run:
        notes.append("nothing relaunches a lost machine by itself: `kedge resume` does, from the last checkpoint")
    notes.extend(_fetch_notes(job))
    return tuple(notes)


def _fetch_notes(job: Job) -> list[str]:
    # A query may be a signature.
    fetched = [(mount.source.partition("?")[0], mount.target) for mount in job.data if mount.is_fetched]
    if not job.run:
        return [f"{source} is not fetched: the job has no command" for source, _ in fetched]
    return [f"the machine fetches {source} to {target} before the command starts" for source, target in fetched]


def _teardown_notes(observed: Observed) -> tuple[str, ...]:
    if observed.machines and observed.report is None:
        kept = "the object store's copy is fetched" if observed.keeps_results else "nothing can be fetched from it"
        return (f"the machine doesn't answer: {kept}",)
    return ()


def _describe_wishes(job: Job) -> str:
    wishes = job.resources
    named = (
        ("GPU", wishes.accelerators),
        ("type", wishes.instance_type),
        ("region", ", ".join(wishes.regions) or None),
        ("zone", wishes.zone),
    )
    said = [f"{name} {value}" for name, value in named if value is not None]
    return ", ".join(said) or "the job"
