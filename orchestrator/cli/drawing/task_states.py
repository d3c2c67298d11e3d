"""Draws a run's tasks: their states in a few words, as a table, and as data for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.cli.drawing.status_line import progress_words
from orchestrator.cli.terminal.table import Table
from orchestrator.core.values.units import format_duration

if TYPE_CHECKING:
    from orchestrator.core.job import Job
    from orchestrator.core.protocol.report import Command, MachineReport, RunState, TaskReport
    from orchestrator.core.protocol.sample import Sample
    from orchestrator.core.task import Task
    from orchestrator.engine.observing.recorded import RunStatus
    from orchestrator.engine.run_progress import RunProgress


def describe_states(commands: Mapping[str, Command]) -> str:
    """Name each task's state; empty for a run whose only task has no name."""
    return ", ".join(f"{name}: {command.state}" for name, command in commands.items() if name)


def count_states(states: Iterable[RunState]) -> str:
    """Count tasks by their states: `1 running, 2 waiting`."""
    return ", ".join(f"{count} {state}" for state, count in Counter(states).items())


def outcome_lines(commands: Mapping[str, Command]) -> list[str]:
    """Say how each named task stands, and why."""
    return [
        f"  {name}: {command.state}{f' ({command.reason})' if command.reason else ''}"
        for name, command in commands.items()
    ]


def outcomes_as_data(job: Job, progress: RunProgress) -> list[dict[str, Any]]:
    """Return how each task stands as data for JSON; the only task of most runs has an empty name."""
    known = {"": progress.command, **progress.tasks}
    return [_outcome_as_data(task.name, known.get(task.name)) for task in job.tasks]


def _outcome_as_data(name: str, command: Command | None) -> dict[str, Any]:
    return {
        "task": name,
        "state": command.state if command else "unknown",
        "attempt": command.attempt if command else 0,
        "exit_code": command.exit_code if command else None,
        "reason": command.reason if command else "",
    }


def run_progress(tasks: Mapping[str, TaskReport]) -> str:
    """Describe the progress of a run in one line: how many tasks are in which state, or how far the only one is."""
    if len(tasks) > 1:
        return count_states(task.command.state for task in tasks.values())
    counts, metrics = progress_words(next((task.progress for task in tasks.values()), None))
    return "  ".join([*counts, *metrics[:1]])


def task_table(status: RunStatus, names: Sequence[str]) -> Table | None:
    """Make the table of these tasks, or of all; None if no named task is known."""
    rows = [row for task in status.record.spec.job.tasks if (row := _row(status, task, names))]
    if not rows:
        return None
    columns = ("", "task", "state", "attempt", "progress", "checkpoint", "GPUs", "remark")
    shown = [number for number in range(len(columns)) if not number or any(row[number] for row in rows)]
    table = Table(*(columns[number] for number in shown), names=("task", "state"))
    for row in rows:
        table.add_row(*(row[number] for number in shown))
    return table


def _row(status: RunStatus, task: Task, names: Sequence[str]) -> list[str] | None:
    command = status.commands.get(task.name)
    if not task.name or command is None or (names and task.name not in names):
        return None
    report, seen = status.report, status.task_reports.get(task.name)
    counts, metrics = progress_words(seen.progress if seen else None)
    return [
        "!" if task.name in status.stalled else "",
        task.name,
        command.state,
        str(command.attempt or "-"),
        "  ".join([*counts, *metrics[:1]]) or "-",
        _checkpoint(seen, report) or "-",
        gpu_words(task, report.sample if report else None),
        _remark(status, task, command),
    ]


def _remark(status: RunStatus, task: Task, command: Command) -> str:
    if (silent := status.stalled.get(task.name)) is not None:
        return f"silent for {format_duration(silent)}"
    return command.reason


def _checkpoint(seen: TaskReport | None, report: MachineReport | None) -> str:
    if seen is None or report is None or seen.checkpoint is None:
        return ""
    age = format_duration(timedelta(seconds=report.now - seen.checkpoint.written))
    return f"{seen.checkpoint.name}, {age} old"


def gpu_words(task: Task, sample: Sample | None) -> str:
    """Describe the load of a task's own GPUs; empty if it has none, `?` for one whose load is unknown."""
    if not task.gpus or sample is None or not sample.gpus:
        return ""
    use = {gpu.index: gpu.use_percent for gpu in sample.gpus}
    return " ".join("?" if use.get(index) is None else f"{use[index]:.0f}%" for index in task.gpus)


def tasks_as_data(status: RunStatus, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return these tasks, or all, as data for JSON; the only task of most runs has an empty name."""
    return [_task_as_data(status, task) for task in status.record.spec.job.tasks if not names or task.name in names]


def _task_as_data(status: RunStatus, task: Task) -> dict[str, Any]:
    command, seen = status.commands.get(task.name), status.task_reports.get(task.name)
    silent = status.stalled.get(task.name)
    return {
        **_outcome_as_data(task.name, command),
        "gpus": task.gpus,
        "cpus": task.cpus,
        "after": task.after,
        "progress": seen.progress if seen else None,
        "checkpoint": seen.checkpoint if seen else None,
        "silent_seconds": silent.total_seconds() if silent is not None else None,
        "started_over": seen is not None and seen.anew is not None,
    }
