"""The plan of a launch, which is also that of `resume`: from what there is of the run it derives what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, FollowCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Ending, Observed, Plan, usable_machine
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
    start = _start_anew(spec, within_budget(spec, observed)) if machine is None else _go_on(spec, observed, machine)
    actions = (*unclear, *start.actions, *_plan_ending(spec, start.machine_id, ending))
    plan = price_plan(spec, observed, actions, start.terms)
    refuse_over_budget(plan)
    return replace(plan, notes=launch_notes(spec, observed, ending))


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
    )
    return _Start(machine_id=machine_id, actions=actions, terms=terms)


def _go_on(spec: LaunchSpec, observed: Observed, machine: Machine) -> _Start:
    rate = machine.usd_per_hour
    terms = Terms(usd_per_hour=rate, most_usd_per_hour=rate, deadline_at=machine.deadline_at)
    return _Start(machine_id=machine.id, actions=plan_on_machine(spec.job, observed, machine), terms=terms)


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


def _plan_ending(spec: LaunchSpec, machine_id: str, ending: Ending) -> tuple[Action, ...]:
    if not spec.job.run or not ending.follow:
        return ()
    actions: list[Action] = [FollowCommand(machine_id=machine_id)]
    if ending.destination is not None:
        actions.append(FetchResults(machine_id=machine_id, destination=ending.destination))
    if not spec.keep:
        actions.append(DestroyMachine(machine_id=machine_id))
    return tuple(actions)
