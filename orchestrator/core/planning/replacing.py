"""Plans the replacement of some of a run's several machines: those that are left stay, and all start together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.core.actions import Action, AwaitMachine, CreateMachine, StopCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Observed
from orchestrator.core.planning.price import Terms, most_once_usd, terms_of
from orchestrator.core.planning.tasks import live_names, state_of, tasks_on, unfinished_tasks
from orchestrator.core.planning.to_start import (
    await_unready,
    plan_code,
    plan_data,
    plan_leaving,
    plan_start,
)
from orchestrator.core.protocol.report import RunState


def lost_ranks(spec: LaunchSpec, observed: Observed, left: Sequence[Machine]) -> dict[int, str]:
    """Return the ids of the machines that replace the lost ones, by rank."""
    there = {machine.rank for machine in left}
    ranks = (rank for rank in range(spec.job.num_nodes) if rank not in there)
    first = observed.machines_before + 1
    return {rank: f"{spec.run_id}-m{number}" for number, rank in enumerate(ranks, first)}


def terms_of_replacement(observed: Observed, left: Sequence[Machine], new: Mapping[int, str]) -> Terms:
    """Return the terms of the machines that are left, and of those that replace the lost ones, until their deadline."""
    terms, offers, count = terms_of(left, observed.now), observed.like_left, len(new)
    return replace(
        terms,
        usd_per_hour=terms.usd_per_hour + offers[0].total_usd_per_hour * count,
        most_usd_per_hour=terms.most_usd_per_hour + max(offer.worst_usd_per_hour for offer in offers) * count,
        once_usd=offers[0].once_usd * count,
        most_once_usd=most_once_usd(offers) * count,
        at_least=max(terms.at_least, *(offer.billed_for_at_least for offer in offers)),
    )


def plan_replacement(
    spec: LaunchSpec, observed: Observed, left: Sequence[Machine], new: Mapping[int, str]
) -> tuple[Action, ...]:
    """Plan new machines for the lost ranks, and a start of all together, from the newest checkpoint.

    Commands on the machines that are left are stopped only once the new machines are ready: an elastic job trains
    meanwhile, and those of another job wait for the lost machine. The new machines start last, so that a command that
    died on the way leaves one that was never started: `resume` and `reap` recognize it.

    Args:
        spec: the run.
        observed: the run's state.
        left: the machines that stay.
        new: the ids of those that replace the others, by rank; empty if none is to be replaced.
    """
    job = spec.job
    actions: list[Action] = [
        *_creations(observed, left, new),
        *await_unready(observed, left),
        *(AwaitMachine(machine_id=name) for name in new.values()),
    ]
    for name in new.values():
        actions += (*plan_code(job, observed.code, name), *plan_data(job, name))
    actions += _stops(observed, left)
    actions += plan_leaving(observed, left)
    for machine in left:
        report = observed.report_of(machine)
        if report is None or observed.code is None or report.code != observed.code.hash:
            actions += plan_code(job, observed.code, machine.id)
        if not _has_begun(spec, observed, machine):
            actions += plan_data(job, machine.id)
    return (*actions, *_starts(spec, observed, left, new))


def _creations(observed: Observed, left: Sequence[Machine], new: Mapping[int, str]) -> tuple[CreateMachine, ...]:
    """Plan each new machine; all machines of the run have one deadline, that of those that are left."""
    names, until = list(new.values()), min(machine.deadline_at for machine in left)
    return tuple(
        CreateMachine(
            machine_id=name,
            offers=observed.like_left,
            lifetime=until - observed.now,
            until=until,
            rank=rank,
            joins=(*(machine.id for machine in left), *names[: names.index(name)]),
        )
        for rank, name in new.items()
    )


def _stops(observed: Observed, left: Sequence[Machine]) -> tuple[StopCommand, ...]:
    if observed.other_mode is not None:
        return ()
    reports = ((machine, observed.report_of(machine)) for machine in left)
    return tuple(
        StopCommand(machine_id=machine.id, restarts=True, tasks=live_names(report))
        for machine, report in reports
        if report is not None and report.command.state.is_live
    )


def _starts(
    spec: LaunchSpec, observed: Observed, left: Sequence[Machine], new: Mapping[int, str]
) -> tuple[Action, ...]:
    job = spec.job
    head = next((observed.report_of(machine) for machine in left if not machine.rank), None)
    succeeded = (task.name for task in job.tasks if task.name and state_of(task, head) is RunState.SUCCEEDED)
    # The head may know more than the object store.
    observed = replace(observed, done=tuple(dict.fromkeys((*observed.done, *succeeded))))
    resumes = observed.has_results or any(_has_begun(spec, observed, machine) for machine in left)
    there = [(each.id, unfinished_tasks(job, observed, observed.report_of(each), each.rank)) for each in left]
    there += [(name, unfinished_tasks(job, observed, None, rank)) for rank, name in new.items()]
    return tuple(plan_start(spec, observed, tasks, name, resumes=resumes) for name, tasks in there if tasks)


def _has_begun(spec: LaunchSpec, observed: Observed, machine: Machine) -> bool:
    report = observed.report_of(machine)
    return any(state_of(task, report) is not RunState.IDLE for task in tasks_on(spec.job, machine.rank))
