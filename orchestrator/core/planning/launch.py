"""Plans a launch or a `resume`: compares the run as observed with what is wanted, and plans what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, FollowCommand, StopCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.plan import AfterStart, Observed, Plan, plan_takes, usable_machine
from orchestrator.core.planning.notes import launch_notes
from orchestrator.core.planning.price import (
    Terms,
    leave_out_over_budget,
    lifetime_of,
    most_once_usd,
    price_plan,
    refuse_over_budget,
)
from orchestrator.core.planning.to_start import plan_new_machine, plan_on_machine
from orchestrator.core.protocol.report import RunState


def plan_launch(spec: LaunchSpec, observed: Observed, after_start: AfterStart) -> Plan:
    """Plan what is missing between the observed state and a completed run.

    An unusable machine, such as one whose creation is unclear, is ended before another one is created. If it still
    answers, its command is stopped and its results are fetched first.

    Raises:
        BadRequestError: the job can't end before its deadline.
        NoCapacityError: there is no offer.
        OverBudgetError: the worst case costs more than the budget.
    """
    machine = usable_machine(observed.machines, observed.report)
    useless = tuple(m for m in observed.machines if m is not machine)
    if machine is None and _has_succeeded(observed):
        return _plan_fetch_only(spec, observed, after_start)
    start = (
        _start_on_new_machine(spec, leave_out_over_budget(spec, observed))
        if machine is None
        else _start_on_machine(spec, observed, machine)
    )
    before = (*_plan_rescue(spec, observed, useless, after_start), *_plan_replaced(useless))
    after = _plan_after_start(spec, start.machine_id, after_start)
    actions = (*before, *start.actions, *after)
    plan = price_plan(spec, observed, actions, start.terms)
    refuse_over_budget(plan)
    notes = launch_notes(spec, observed, after_start, actions)
    return replace(plan, notes=notes, takes=plan_takes(spec), ends=_ends_a_machine(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """The steps that start the command, on which machine, and at what price."""

    machine_id: str
    actions: tuple[Action, ...]
    terms: Terms


def _start_on_new_machine(spec: LaunchSpec, observed: Observed) -> _Start:
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


def _start_on_machine(spec: LaunchSpec, observed: Observed, machine: Machine) -> _Start:
    rate = machine.usd_per_hour
    at_least = machine.created_at + machine.billed_for_at_least - observed.now
    terms = Terms(usd_per_hour=rate, most_usd_per_hour=rate, deadline_at=machine.deadline_at, at_least=at_least)
    return _Start(machine_id=machine.id, actions=plan_on_machine(spec.job, observed, machine), terms=terms)


def _plan_replaced(useless: tuple[Machine, ...]) -> tuple[Action, ...]:
    """End the machines in whose place the run has another one, or gets one."""
    return tuple(DestroyMachine(machine_id=m.id, is_ending=m.state is MachineState.ENDING) for m in useless)


def _plan_rescue(
    spec: LaunchSpec, observed: Observed, useless: tuple[Machine, ...], after_start: AfterStart
) -> tuple[Action, ...]:
    """Bring the results of an unusable machine that still answers to the laptop and the store, before it is ended.

    A machine that is being reclaimed stops its command and uploads by itself, and has no time for a copy.
    """
    report = observed.report
    actions: list[Action] = []
    if spec.job.run and report is not None and not report.notice and report.machine in {m.id for m in useless}:
        if report.command.state.is_live:
            actions.append(StopCommand(machine_id=report.machine, restarts=True))
        if after_start.destination is not None:
            actions.append(FetchResults(machine_id=report.machine, destination=after_start.destination))
    return tuple(actions)


def _has_succeeded(observed: Observed) -> bool:
    """Tell whether the command has succeeded; the machine may know before the object store does."""
    seen = observed.report.command.state if observed.report else None
    return RunState.SUCCEEDED in (seen, observed.outcome)


def _plan_fetch_only(spec: LaunchSpec, observed: Observed, after_start: AfterStart) -> Plan:
    """Fetch the results of a run that has succeeded, from the machine that still answers or from the object store."""
    actions = list(_plan_rescue(spec, observed, observed.machines, after_start))
    actions += (DestroyMachine(machine_id=machine.id) for machine in observed.machines)
    if after_start.destination is not None and not any(isinstance(action, FetchResults) for action in actions):
        source = f"{spec.run_id}-m{observed.machines_before}"
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


def _plan_after_start(spec: LaunchSpec, machine_id: str, after_start: AfterStart) -> tuple[Action, ...]:
    if not spec.job.run or not after_start.follow:
        return ()
    actions: list[Action] = [FollowCommand(machine_id=machine_id)]
    if after_start.destination is not None:
        actions.append(FetchResults(machine_id=machine_id, destination=after_start.destination))
    if not spec.keep:
        actions.append(DestroyMachine(machine_id=machine_id))
    return tuple(actions)
