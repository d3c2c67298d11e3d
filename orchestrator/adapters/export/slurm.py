"""Renders a job for Slurm: a batch script for each task, and `submit.sh`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from orchestrator.adapters.export.contract import render_contract
from orchestrator.adapters.export.model import SCRIPT, ExportFile, nodes_of, own_master, prefix_of, title_of
from orchestrator.adapters.host.templates import render
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.task import Task

_CPUS_PER_GPU = 4
"""A cluster refuses a job that asks for more cores than a node has; few nodes have less for each GPU."""
_LONGEST_SIGNAL_S = 65535


def render_slurm(job: Job, gpus: int) -> Iterator[ExportFile]:
    """Yield the files; `gpus` is how many a node must have.

    Raises:
        BadRequestError: Slurm can't express the job.
    """
    require_time(job, job.grace)
    yield from render_contract(job, gpus)
    for task in job.tasks:
        script = render("export/job.sbatch.j2", **_values(job, task, gpus))
        yield ExportFile(path=f"{prefix_of(task)}job.sbatch", content=script.encode(), mode=SCRIPT)
    variables = {task.name: f"job_{number}" for number, task in enumerate(job.tasks)}
    tasks = [
        {"name": task.name, "variable": variables[task.name], "after": variables[task.after] if task.after else ""}
        for task in _in_order(job)
    ]
    targets = [mount.target for mount in job.data]
    script = render("export/slurm-submit.sh.j2", job=job.name, tasks=tasks, data=targets)
    yield ExportFile(path="submit.sh", content=script.encode(), mode=SCRIPT)


def require_time(job: Job, needed: timedelta) -> None:
    """Refuse a deadline that leaves no time for the command.

    Raises:
        BadRequestError: it does.
    """
    if job.time_limit <= needed:
        raise BadRequestError(
            "the deadline leaves the command no time",
            why=f"of {round(job.time_limit.total_seconds())} s, the last {round(needed.total_seconds())} s are for a "
            "checkpoint and for the scheduler to end the job",
            fix="set a later deadline with --ttl, or a shorter `grace` in the job file",
        )


def in_order(job: Job) -> tuple[Task, ...]:
    """Return the tasks, each behind the one that it comes after."""
    return tuple(_in_order(job))


def _in_order(job: Job) -> Iterator[Task]:
    left = list(job.tasks)
    done: set[str] = {""}
    while left:
        ready = [task for task in left if task.after in done]
        yield from ready
        done |= {task.name for task in ready}
        left = [task for task in left if task not in ready]


def _values(job: Job, task: Task, gpus: int) -> dict[str, object]:
    own = gpus if task.gpus is None else len(task.gpus)
    return {
        "title": title_of(job, task),
        "job": job.name,
        "job_name": f"{job.name}-{task.name}" if task.name else job.name,
        "prefix": prefix_of(task),
        "time": format_time(job.time_limit),
        "seconds": round(job.time_limit.total_seconds()),
        "nodes": nodes_of(job, task),
        "cpus": task.cpus or _CPUS_PER_GPU * max(1, own),
        "gpus": own,
        "gpu": job.resources.accelerators.name if job.resources.accelerators else "GPUs",
        # fact: slurm-signal
        "grace": min(round(task.supervisor.grace.total_seconds()), _LONGEST_SIGNAL_S),
        "exported": ",".join(["KEDGE_RUN_ID", *job.from_shell]),
        "master": own_master(job, task),
    }


def format_time(limit: timedelta) -> str:
    """Write a time limit as Slurm reads it: days-hours:minutes:seconds."""
    minutes, seconds = divmod(round(limit.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
