"""Plans for jobs with several tasks: which are started, on which machines they fit, and what the user should know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.core.actions import Action, StageCode, StartCommand
from orchestrator.core.errors import JobKeyError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Observed
from orchestrator.core.protocol.report import MachineReport, RunState
from orchestrator.core.task import OnFailure, Task
from orchestrator.core.task_order import check_gpus, most_cpus


def task_states(report: MachineReport | None) -> dict[str, RunState]:
    """Return the state of each task on a machine, by its name; a task that was never started may be missing."""
    return {} if report is None else {name: task.command.state for name, task in report.each_task.items()}


def state_of(task: Task, report: MachineReport | None) -> RunState:
    """Return the state of a task on a machine."""
    return task_states(report).get(task.name, RunState.IDLE)


def tasks_on(job: Job, rank: int) -> tuple[Task, ...]:
    """Return the tasks that run on a machine of this rank; some run on the head only."""
    return tuple(task for task in job.tasks if task.runs_on(rank))


def unfinished_tasks(job: Job, observed: Observed, report: MachineReport | None, rank: int = 0) -> tuple[Task, ...]:
    """Return a machine's tasks that have not succeeded, there or on an earlier machine; running ones included."""
    return tuple(task for task in tasks_on(job, rank) if not _is_done(task, observed, report))


def pending_tasks(job: Job, observed: Observed, report: MachineReport | None, rank: int = 0) -> tuple[Task, ...]:
    """Return the tasks to start on a machine: those that neither run nor have succeeded."""
    return tuple(task for task in unfinished_tasks(job, observed, report, rank) if not state_of(task, report).is_live)


def _is_done(task: Task, observed: Observed, report: MachineReport | None) -> bool:
    state = state_of(task, report)
    return state is RunState.SUCCEEDED or (state is RunState.IDLE and task.name in observed.done)


def live_names(report: MachineReport | None) -> tuple[str, ...]:
    """Name the running tasks, as actions do: not at all if it is the only, unnamed one."""
    return tuple(name for name, state in task_states(report).items() if state.is_live and name)


def names_of(tasks: tuple[Task, ...]) -> tuple[str, ...]:
    """Name tasks, as actions do: not at all if it is the only, unnamed one."""
    return tuple(task.name for task in tasks if task.name)


def leave_out_unfit(spec: LaunchSpec, observed: Observed) -> Observed:
    """Leave out the offers on which the tasks don't fit.

    Raises:
        JobKeyError: they don't fit on the first one, which would be rented.
    """
    if not observed.offers:
        return observed
    _require_fit(spec, observed.offers[0])
    return replace(observed, offers=tuple(offer for offer in observed.offers if _fits(spec, offer)))


def task_notes(spec: LaunchSpec, observed: Observed, actions: tuple[Action, ...]) -> list[str]:
    """Note what several tasks share, which have succeeded before, and what happens when one fails."""
    job = spec.job
    offer = observed.offers[0] if observed.offers else None
    done = [name for action in actions if isinstance(action, StageCode | StartCommand) for name in action.done]
    notes = [f"not started again, since they have succeeded: {', '.join(done)}"] if done else []
    if offer is not None and not offer.accelerators and any(task.gpus for task in job.tasks):
        notes.append("this computer has no GPUs: `gpus` isn't applied, and tasks that have it share the cores evenly")
    if len(job.tasks) < 2:
        return notes
    sharing = [task.name for task in job.tasks if task.gpus is None]
    if offer is not None and offer.accelerators and sharing:
        notes.append(f"each of these tasks sees all GPUs, since it has no `gpus`: {', '.join(sharing)}")
    if job.on_failure is OnFailure.STOP_ALL:
        notes.append("when a task fails for good, the others are stopped (`on_failure: stop-all`)")
    else:
        notes.append("when a task fails for good, the others go on (`on_failure: stop-all` stops them)")
    return notes


def _fits(spec: LaunchSpec, offer: Offer) -> bool:
    try:
        _require_fit(spec, offer)
    except JobKeyError:
        return False
    return True


def require_gpus(job: Job, machines: Iterable[Machine]) -> None:
    """Check that existing machines have the GPUs that the tasks name; of one without GPUs nothing is known.

    Raises:
        JobKeyError: one hasn't.
    """
    for machine in machines:
        if machine.gpus:
            check_gpus(job, machine.gpus, f"the run goes on with {machine.id}")


def _require_fit(spec: LaunchSpec, offer: Offer) -> None:
    """Check that the tasks of the present mode, and of those that follow, fit on an offer's machine."""
    name = offer.place if offer.instance_type == offer.provider else f"{offer.place} {offer.instance_type}"
    is_here = spec.python is not None
    for job in (spec.job, *spec.later):
        if offer.accelerators is not None or not is_here:
            check_gpus(job, offer.accelerators.count if offer.accelerators else 0, f"the first offer is {name}")
        if most_cpus(job) > offer.cpus:
            pinned = next(task for task in job.tasks if task.cpus)
            raise JobKeyError(
                ("tasks", pinned.name, "cpus"),
                f"the tasks that run at the same time are pinned to {most_cpus(job)} cores together",
                why=f"the first offer, {name}, has {offer.cpus}",
                fix="ask for fewer, or for a larger machine with `instance_type`",
                mode=job.mode,
            )
