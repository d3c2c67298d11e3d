"""The plan of a launch, which is also that of `resume`: from what there is of the run it derives what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, FollowCommand, StopCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Ending, Observed, Plan, plan_takes, usable_machine
from orchestrator.core.planning.notes import launch_notes
from orchestrator.core.planning.price import (
    Terms,
    lifetime_of,
    most_once_usd,
    price_plan,
    refuse_over_budget,
    within_budget,
)
from orchestrator.core.planning.steps import plan_new_machine, plan_on_machine
from orchestrator.core.report import RunState


def plan_launch(spec: LaunchSpec, observed: Observed, ending: Ending) -> Plan:
    """Plan what is missing between what was observed and a run that is done.

    A machine that nobody can use, such as one whose creation is unclear, is ended before another is made; where it
    still answers, its command is stopped and its results are fetched first.

    Raises:
        BadRequestError: the job can't end before its deadline.
        NoCapacityError: there is no offer.
        OverBudgetError: the worst case costs more than the budget.
    """
    machine = usable_machine(observed.machines, observed.report)
    useless = tuple(m for m in observed.machines if m is not machine)
    if machine is None and _has_succeeded(observed):
        return _plan_late_fetch(spec, observed, ending)
    start = _start_anew(spec, within_budget(spec, observed)) if machine is None else _go_on(spec, observed, machine)
    before, after = _plan_ends(spec, observed, useless, ending), _plan_ending(spec, start.machine_id, ending)
    actions = (*before, *start.actions, *after)
    plan = price_plan(spec, observed, actions, start.terms)
    refuse_over_budget(plan)
    notes = launch_notes(spec, observed, ending, actions)
    return replace(plan, notes=notes, takes=plan_takes(spec), ends=_ends_a_machine(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What it takes until the command is at work, on which machine, and at what price."""

    machine_id: str
    actions: tuple[Action, ...]
    terms: Terms


def _start_anew(spec: LaunchSpec, observed: Observed) -> _Start:
    machine_id = f"{spec.run_id}-m{observed.machines_before + 1}"
    actions = plan_new_machine(spec, observed, machine_id)
    terms = Terms(
        usd_per_hour=observed.offers[0].total_usd_per_hour,
        most_usd_per_hour=max(offer.worst_usd_per_hour for offer in observed.offers),
        once_usd=observed.offers[0].once_usd,
        most_once_usd=most_once_usd(observed.offers),
        deadline_at=observed.now + lifetime_of(spec, observed.now),
        at_least=max(offer.billed_for_at_least for offer in observed.offers),
    )
    return _Start(machine_id=machine_id, actions=actions, terms=terms)


def _go_on(spec: LaunchSpec, observed: Observed, machine: Machine) -> _Start:
    rate = machine.usd_per_hour
    at_least = machine.created_at + machine.billed_for_at_least - observed.now
    terms = Terms(usd_per_hour=rate, most_usd_per_hour=rate, deadline_at=machine.deadline_at, at_least=at_least)
    return _Start(machine_id=machine.id, actions=plan_on_machine(spec.job, observed, machine), terms=terms)


def _plan_ends(
    spec: LaunchSpec, observed: Observed, useless: tuple[Machine, ...], ending: Ending
) -> tuple[Action, ...]:
    """End machines that nobody can use, once what the one that still answers has made is at home and in the store.

    One that is being reclaimed stops its command and uploads by itself, and has no time for a copy.
    """
    report = observed.report
    actions: list[Action] = []
    if spec.job.run and report is not None and not report.notice and report.machine in {m.id for m in useless}:
        if report.command.state.is_live:
            actions.append(StopCommand(machine_id=report.machine, restarts=True))
        if ending.destination is not None:
            actions.append(FetchResults(machine_id=report.machine, destination=ending.destination))
    return (*actions, *(DestroyMachine(machine_id=m.id) for m in useless))


def _has_succeeded(observed: Observed) -> bool:
    """The machine may know of it, and the object store not yet."""
    seen = observed.report.command.state if observed.report else None
    return RunState.SUCCEEDED in (seen, observed.outcome)


def _plan_late_fetch(spec: LaunchSpec, observed: Observed, ending: Ending) -> Plan:
    """A run that has succeeded needs no machine: its results are on the one that still answers, or in the store."""
    actions = list(_plan_ends(spec, observed, observed.machines, ending))
    if ending.destination is not None and not any(isinstance(action, FetchResults) for action in actions):
        source = f"{spec.run_id}-m{observed.machines_before}"
        actions.append(FetchResults(machine_id=source, destination=ending.destination))
    return Plan(
        run_id=spec.run_id,
        actions=tuple(actions),
        worst_usd=observed.spent_usd,
        notes=("the run has succeeded already; nothing is rented for it",),
        mark=observed.mark,
        ends=_ends_a_machine(tuple(actions)),
    )


def _ends_a_machine(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(action, DestroyMachine) for action in actions)


def _plan_ending(spec: LaunchSpec, machine_id: str, ending: Ending) -> tuple[Action, ...]:
    if not spec.job.run or not ending.follow:
        return ()
    actions: list[Action] = [FollowCommand(machine_id=machine_id)]
    if ending.destination is not None:
        actions.append(FetchResults(machine_id=machine_id, destination=ending.destination))
    if not spec.keep:
        actions.append(DestroyMachine(machine_id=machine_id))
    return tuple(actions)
