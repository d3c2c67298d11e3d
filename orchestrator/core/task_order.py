"""The order of a job's tasks: which of them run at the same time, and what they need together.

Each task starts at once, or after one other has succeeded: the tasks are trees. Two tasks run at the same time unless
one waits for the other, directly or through further ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations

from orchestrator.core.errors import JobKeyError
from orchestrator.core.job import Job
from orchestrator.core.task import Nodes, Task


def check_tasks(job: Job) -> None:
    """Check what a job says about its tasks, as far as that is known without a machine.

    Raises:
        JobKeyError: a task waits for one that doesn't exist, or for itself; two share a GPU; a task asks for a GPU that
            `accelerators` doesn't have, or for the head of a single machine.
    """
    for task in job.tasks:
        _check_after(job, task)
        if task.nodes is Nodes.HEAD and job.num_nodes == 1:
            raise JobKeyError(
                ("tasks", task.name, "nodes"), "there is one machine only", fix="leave it out, or set `num_nodes`"
            )
    for first, second in combinations(job.tasks, 2):
        _check_gpus_of_two(job, first, second)
    wanted = job.resources.accelerators
    if wanted is not None:
        check_gpus(job, wanted.count, f"`accelerators` asks for {wanted}")


def check_gpus(job: Job, count: int, why: str) -> None:
    """Check that a machine with this number of GPUs has those that the tasks name.

    Raises:
        JobKeyError: it hasn't.
    """
    for task in job.tasks:
        missing = [gpu for gpu in task.gpus or () if gpu >= count]
        if missing:
            there = "no GPU" if not count else "only GPU 0" if count == 1 else f"only GPUs 0 to {count - 1}"
            raise JobKeyError(
                ("tasks", task.name, "gpus"),
                f"there is no GPU {missing[0]} on the machine",
                why=f"{why}: it has {there}",
                fix="name GPUs that it has, or ask for another machine with `accelerators`",
                mode=job.mode,
            )


def expected_duration(job: Job) -> timedelta | None:
    """Return how long a job is expected to take; if it doesn't say so, its longest chain of tasks; None if unknown."""
    if job.expect.duration is not None:
        return job.expect.duration
    chains: list[timedelta] = []
    for task in job.tasks:
        durations = [each.expect.duration for each in (task, *_predecessors(job, task))]
        known = [duration for duration in durations if duration is not None]
        if len(known) < len(durations):
            return None
        chains.append(sum(known, timedelta(0)))
    return max(chains, default=None)


def most_cpus(job: Job) -> int:
    """Return how many cores the tasks are pinned to, at most at the same time."""
    return sum(_most_cpus_from(job, task) for task in job.tasks if not task.after)


def _most_cpus_from(job: Job, task: Task) -> int:
    later = sum(_most_cpus_from(job, each) for each in job.tasks if each.after and each.after == task.name)
    return max(task.cpus or 0, later)


def _predecessors(job: Job, task: Task) -> Iterator[Task]:
    """Yield the task that this one waits for, then the one which that one waits for, and so on."""
    by_name = {each.name: each for each in job.tasks}
    while task.after:
        task = by_name[task.after]
        yield task


def _check_after(job: Job, task: Task) -> None:
    key = ("tasks", task.name, "after")
    by_name = {each.name: each for each in job.tasks}
    chain = [task.name]
    while after := by_name[chain[-1]].after:
        if after not in by_name:
            raise JobKeyError(
                ("tasks", chain[-1], "after"),
                f"there is no task {after}",
                why=f"the tasks are {', '.join(by_name)}",
                fix="name one of them",
            )
        chain.append(after)
        if after == task.name:
            raise JobKeyError(
                key,
                "this task would wait for itself",
                why=" waits for ".join(chain),
                fix="let one of them start without `after`",
            )
        if chain.count(after) > 1:
            return  # a cycle that this task only leads to; its own tasks are refused


def _check_gpus_of_two(job: Job, first: Task, second: Task) -> None:
    shared = sorted(set(first.gpus or ()) & set(second.gpus or ()))
    if not shared or first in _predecessors(job, second) or second in _predecessors(job, first):
        return
    raise JobKeyError(
        ("tasks", second.name, "gpus"),
        f"GPU {shared[0]} is given to task {first.name} too",
        why="both tasks run at the same time, and each GPU belongs to one",
        fix=f"choose other GPUs, or let one start when the other has succeeded: `after: {first.name}`",
    )
