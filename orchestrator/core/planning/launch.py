"""Plans a launch or a `resume`: compares the run as observed with what is wanted, and plans what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, FollowCommand, StopCommand
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.plan import (
    AfterStart,
    Observed,
    Plan,
    goes_on_without,
    machines_left,
    plan_takes,
    usable_machines,
)
from orchestrator.core.planning.extend import deadline_notes
from orchestrator.core.planning.notes import launch_notes
from orchestrator.core.planning.price import (
    Terms,
    fits_budget,
    leave_out_over_budget,
    lifetime_of,
    most_once_usd,
    price_plan,
    refuse_over_budget,
    terms_of,
)
from orchestrator.core.planning.replacing import lost_ranks, plan_replacement, terms_of_replacement
from orchestrator.core.planning.tasks import leave_out_unfit, live_names, unfinished_tasks
from orchestrator.core.planning.to_start import plan_new_machines, plan_on_machines
from orchestrator.core.protocol.report import RunState


def plan_launch(spec: LaunchSpec, observed: Observed, after_start: AfterStart) -> Plan:
    """Plan what is missing between the observed state and a completed run.

    An unusable machine, such as one whose creation is unclear, is ended before another one is created. If it still
    answers, its command is stopped and its results are fetched first.

    Raises:
        BadRequestError: the job can't end before its deadline, or its tasks don't fit on the machine.
        NoCapacityError: there is no offer.
        OverBudgetError: the worst case costs more than the budget.
    """
    machines = usable_machines(observed.machines, observed.all_reports, spec.job.num_nodes)
    if not machines and _has_succeeded(spec.job, observed):
        return _plan_fetch_only(spec, observed, after_start)
    start = _plan_start(spec, observed, machines or machines_left(observed.machines, observed.all_reports))
    machines = start.keeps
    useless = tuple(m for m in observed.machines if m not in machines)
    before = (*_plan_rescue(spec, observed, useless, after_start), *_plan_replaced(useless))
    after = _plan_after_start(spec, start.machine_ids, after_start)
    actions = (*before, *start.actions, *after)
    plan = price_plan(spec, observed, actions, start.terms)
    refuse_over_budget(plan)
    notes = launch_notes(spec, observed, after_start, actions)
    if machines and start.actions:
        notes = (*deadline_notes(spec.run_id, spec.job, observed, machines[0]), *notes)
    return replace(plan, notes=notes, takes=plan_takes(spec), ends=_ends_a_machine(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The steps that start the command, on which machines, and at what price.

    Attributes:
        machine_ids: the run's machines, by rank.
        keeps: those of them that exist.
    """

    machine_ids: tuple[str, ...]
    actions: tuple[Action, ...]
    terms: Terms
    keeps: tuple[Machine, ...] = ()


def _plan_start(spec: LaunchSpec, observed: Observed, left: tuple[Machine, ...]) -> _Start:
    """Plan a start on the machines that are left, if they can be completed, or can do without the others."""
    lost = spec.job.num_nodes > max(1, len(left))
    if left and not lost:
        return _start_on_machines(spec, observed, left)
    goes_on = spec.job.num_nodes > 1 and goes_on_without(spec.job, left)
    if left and observed.like_left:
        start = _start_with_replacements(spec, observed, left)
        if not goes_on or fits_budget(spec, observed, start.terms):
            return start
    if goes_on:
        return _start_on_machines(spec, observed, left)
    return _start_on_new_machines(spec, leave_out_over_budget(spec, leave_out_unfit(spec, observed)))


def _start_on_new_machines(spec: LaunchSpec, observed: Observed) -> _Start:
    count, first = spec.job.num_nodes, observed.machines_before + 1
    machine_ids = tuple(f"{spec.run_id}-m{number}" for number in range(first, first + count))
    actions = plan_new_machines(spec, observed, machine_ids)
    terms = Terms(
        instance_type=observed.offers[0].instance_type,
        usd_per_hour=observed.offers[0].total_usd_per_hour * count,
        most_usd_per_hour=max(offer.worst_usd_per_hour for offer in observed.offers) * count,
        once_usd=observed.offers[0].once_usd,
        most_once_usd=most_once_usd(observed.offers),
        deadline_at=observed.now + lifetime_of(spec, observed.now),
        at_least=max(offer.billed_for_at_least for offer in observed.offers),
    )
    return _Start(machine_ids=machine_ids, actions=actions, terms=terms)


def _start_on_machines(spec: LaunchSpec, observed: Observed, machines: tuple[Machine, ...]) -> _Start:
    actions = plan_on_machines(spec, observed, machines)
    if observed.outdated or (actions and spec.job.elastic is not None):
        # The head of an elastic job admits no machine while an attempt runs.
        actions = plan_replacement(spec, observed, machines, {})
    terms = terms_of(machines, observed.now)
    ids = tuple(machine.id for machine in machines)
    return _Start(machine_ids=ids, actions=actions, terms=terms, keeps=machines)


def _start_with_replacements(spec: LaunchSpec, observed: Observed, left: tuple[Machine, ...]) -> _Start:
    new = lost_ranks(spec, observed, left)
    by_rank = {machine.rank: machine.id for machine in left} | new
    return _Start(
        machine_ids=tuple(by_rank[rank] for rank in sorted(by_rank)),
        actions=plan_replacement(spec, observed, left, new),
        terms=terms_of_replacement(observed, left, new),
        keeps=left,
    )


def _plan_replaced(useless: tuple[Machine, ...]) -> tuple[Action, ...]:
    """End the machines in whose place the run has another one, or gets one."""
    return tuple(DestroyMachine(machine_id=m.id, is_ending=m.state is MachineState.ENDING) for m in useless)


def _plan_rescue(
    spec: LaunchSpec, observed: Observed, useless: tuple[Machine, ...], after_start: AfterStart
) -> tuple[Action, ...]:
    """Bring the results of unusable machines that still answer to the laptop and the store, before they are ended.

    A machine that is being reclaimed stops its command and uploads by itself, and has no time for a copy.
    """
    names = {machine.id for machine in useless}
    answering = [each for each in observed.all_reports if not each.notice and each.machine in names]
    if not spec.job.tasks:
        return ()
    live = (report for report in answering if observed.is_live(report))
    actions: list[Action] = [
        StopCommand(machine_id=report.machine, restarts=True, tasks=live_names(report)) for report in live
    ]
    # Some of several machines may never have started a command. One fetch brings what all of them have.
    sources = [each for each in answering if spec.job.num_nodes == 1 or each.command.state is not RunState.IDLE]
    if after_start.destination is not None and sources:
        source = observed.report if observed.report in sources else sources[0]
        actions.append(FetchResults(machine_id=source.machine, destination=after_start.destination))
    return tuple(actions)


def _has_succeeded(job: Job, observed: Observed) -> bool:
    """Tell whether all tasks have succeeded; the machine may know before the object store does."""
    seen = observed.report.command.state if observed.report else None
    is_done = bool(job.tasks) and not unfinished_tasks(job, observed, None)
    return is_done or RunState.SUCCEEDED in (seen, observed.outcome)


def _plan_fetch_only(spec: LaunchSpec, observed: Observed, after_start: AfterStart) -> Plan:
    """Fetch the results of a run that has succeeded, from the machine that still answers or from the object store."""
    actions = list(_plan_rescue(spec, observed, observed.machines, after_start))
    actions += (DestroyMachine(machine_id=machine.id) for machine in observed.machines)
    if after_start.destination is not None and not any(isinstance(action, FetchResults) for action in actions):
        source = observed.head_before or f"{spec.run_id}-m{observed.machines_before}"
        actions.append(FetchResults(machine_id=source, destination=after_start.destination))
    return Plan(
        run_id=spec.run_id,
        actions=tuple(actions),
        worst_usd=observed.spent_usd,
        notes=("the run has succeeded already; nothing is rented for it",),
        revision=observed.revision,
        ends=_ends_a_machine(tuple(actions)),
    )


def _ends_a_machine(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(action, DestroyMachine) for action in actions)


def _plan_after_start(spec: LaunchSpec, machine_ids: tuple[str, ...], after_start: AfterStart) -> tuple[Action, ...]:
    """Follow the head's command to its end, fetch its results, and end all machines."""
    if not spec.job.tasks or not after_start.follow:
        return ()
    actions: list[Action] = [FollowCommand(machine_id=machine_ids[0])]
    if after_start.destination is not None:
        actions.append(FetchResults(machine_id=machine_ids[0], destination=after_start.destination))
    if not spec.keep:
        actions.extend(DestroyMachine(machine_id=machine_id) for machine_id in machine_ids)
    return tuple(actions)
