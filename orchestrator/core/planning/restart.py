"""Plans a start of tasks on a run's existing machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.core.actions import Action, StartCommand, StopCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Observed, Plan, plan_takes, usable_machines
from orchestrator.core.planning.extend import deadline_notes
from orchestrator.core.planning.notes import resume_notes
from orchestrator.core.planning.price import price_plan, refuse_over_budget, terms_of
from orchestrator.core.planning.tasks import (
    live_names,
    names_of,
    pending_tasks,
    require_gpus,
    state_of,
    tasks_on,
    unfinished_tasks,
)
from orchestrator.core.planning.to_start import plan_code, plan_data, plan_leaving, plan_start
from orchestrator.core.protocol.report import RunState
from orchestrator.core.task import Task


def plan_start_again(spec: LaunchSpec, observed: Observed, names: Sequence[str] = ()) -> Plan:
    """Plan a start, on the existing machines, of the tasks that neither run nor have succeeded.

    If all have ended and succeeded, all are started again; if all others run, nothing is. With names, it is a start of
    these tasks that don't run, whether they have succeeded or not. If the run is to be in another mode than its
    machines, what still runs of that one is stopped first.

    Raises:
        BadRequestError: the run lacks a machine, a mode that begins can't end before the deadline, or its tasks don't
            fit on the machines.
        OverBudgetError: the worst case of a mode that begins costs more than the budget.
    """
    job = spec.job
    machines = _require_machines(spec.run_id, job, observed)
    pending = {each: _to_start(job, observed, each, names) for each in machines}
    if not any(pending.values()):
        if names or _live_machines(job, observed, machines):
            said = "nothing to start: all tasks run already, or have succeeded"
            note = said if names_of(job.tasks) and not names else "the command is at work already"
            return Plan(run_id=spec.run_id, actions=(), notes=(note,), revision=observed.revision)
        pending = {each: tasks_on(job, each.rank) for each in machines}
    require_gpus(job, machines)
    starts = _starts(spec, observed, pending)
    if not any(start.mode and not start.resumes for start in starts):
        return _plan(spec, observed, machines, starts)
    data = tuple(action for machine in machines for action in plan_data(job, machine.id))
    actions = (*plan_leaving(observed, machines), *data, *starts)
    plan = price_plan(spec, observed, actions, terms_of(machines, observed.now))
    refuse_over_budget(plan)
    return replace(plan, notes=resume_notes(job), takes=plan_takes(spec))


def _to_start(job: Job, observed: Observed, machine: Machine, names: Sequence[str]) -> tuple[Task, ...]:
    report = observed.report_of(machine)
    if not names:
        return pending_tasks(job, observed, report, machine.rank)
    named = (task for task in tasks_on(job, machine.rank) if task.name in names)
    return tuple(task for task in named if not state_of(task, report).is_live)


def plan_restart(spec: LaunchSpec, observed: Observed) -> Plan:
    """Plan to send the code, and to start with it all tasks that haven't succeeded; running ones are stopped first.

    Raises:
        BadRequestError: the run lacks a machine.
    """
    job = spec.job
    machines = _require_machines(spec.run_id, job, observed)
    actions: list[Action] = []
    for machine in machines:
        actions += plan_code(job, observed.code, machine.id)
    for machine in _live_machines(job, observed, machines):
        names = live_names(observed.report_of(machine))
        actions.append(StopCommand(machine_id=machine.id, restarts=True, tasks=names))
    actions += plan_leaving(observed, machines)
    unfinished = {each: unfinished_tasks(job, observed, observed.report_of(each), each.rank) for each in machines}
    if not any(unfinished.values()):
        unfinished = {each: tasks_on(job, each.rank) for each in machines}
    return _plan(spec, observed, machines, (*actions, *_starts(spec, observed, unfinished)))


def _plan(spec: LaunchSpec, observed: Observed, machines: tuple[Machine, ...], actions: tuple[Action, ...]) -> Plan:
    notes = (*resume_notes(spec.job), *deadline_notes(spec.run_id, spec.job, observed, machines[0]))
    return Plan(run_id=spec.run_id, actions=actions, notes=notes, revision=observed.revision)


def _live_machines(job: Job, observed: Observed, machines: tuple[Machine, ...]) -> list[Machine]:
    return [each for each in machines if any(state_of(task, observed.report_of(each)).is_live for task in job.tasks)]


def _starts(spec: LaunchSpec, observed: Observed, tasks: dict[Machine, tuple[Task, ...]]) -> tuple[StartCommand, ...]:
    """Plan the start of these tasks on each machine."""
    began = {
        each: any(state_of(task, observed.report_of(each)) is not RunState.IDLE for task in own)
        for each, own in tasks.items()
    }
    return tuple(plan_start(spec, observed, own, each.id, resumes=began[each]) for each, own in tasks.items() if own)


def _require_machines(run_id: str, job: Job, observed: Observed) -> tuple[Machine, ...]:
    machines = usable_machines(observed.machines, observed.all_reports, job.num_nodes)
    if not machines:
        raise BadRequestError(
            f"run {run_id} has no machine" if job.num_nodes == 1 else f"run {run_id} lacks one of its machines",
            fix=f"give it one with `kedge resume {run_id}`, which also starts it",
        )
    return machines
