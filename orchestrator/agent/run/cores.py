"""Pins a task's processes to its part of the machine's cores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..base.config import TaskContext
from ..base.wire import LOCAL, TaskConfig

_CAN_PIN = hasattr(os, "sched_setaffinity")
_ALL = sorted(os.sched_getaffinity(0)) if _CAN_PIN else list(range(os.cpu_count() or 1))


def count_cores(context: TaskContext) -> int | None:
    """Return how many cores a task is pinned to; None if it may use all.

    On the user's own computer without GPUs, tasks that ask for GPUs share the cores evenly, as a rehearsal.
    """
    config, run = context.config, context.run
    if config.cpus is not None or config.gpus is None or context.machine.provider != LOCAL or run.gpus_per_node:
        return config.cpus
    return max(1, len(_ALL) // len([task for task in run.tasks if task.gpus is not None]))


def place_tasks(tasks: Sequence[TaskConfig], counts: Mapping[str, int | None]) -> dict[str, int]:
    """Return the number of each task's first core, so that tasks that run at the same time have different ones.

    Args:
        tasks: all of the run's; one that comes after another may have the same cores.
        counts: how many cores each gets, by its name; None for all.
    """
    begins: dict[str, int] = {}

    def place(after: str, begin: int) -> int:
        """Place the tasks that come after one, from a core on, and return how many cores they have together."""
        width = 0
        for task in tasks:
            if task.after == after and task.name not in begins:
                begins[task.name] = begin + width
                own = counts[task.name] or 0
                width += max(own, place(task.name, begin + width) if task.name else 0)
        return width

    place("", 0)
    return begins


def pin_cores(context: TaskContext) -> None:
    """Pin this process, and the ones that it starts from now on, to the task's cores."""
    if not _CAN_PIN:
        return
    count = count_cores(context)
    cores = _ALL
    if count is not None:
        counts = {task.name: count_cores(context.replace(config=task)) for task in context.run.tasks}
        begin = place_tasks(context.run.tasks, counts)[context.config.name]
        cores = [_ALL[(begin + index) % len(_ALL)] for index in range(count)]
    os.sched_setaffinity(0, cores)
