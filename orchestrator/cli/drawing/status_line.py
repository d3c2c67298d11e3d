"""Makes the status line of a run from its head's report, and describes its machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from orchestrator.core.protocol.decoding import clip
from orchestrator.core.values.cost import price_usd
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.core.machine import Machine
    from orchestrator.core.protocol.report import MachineReport, TaskReport
    from orchestrator.core.protocol.sample import Sample

_NAME = 40
"""The most characters of a metric's name, to leave room for others on the line."""


def status_line_of(report: MachineReport, budget_usd: Decimal | None, machines: int = 1) -> str:
    """Join state, progress with its first metric, cost, time left, and load; the end is cut off first.

    Args:
        report: the head's.
        budget_usd: the run's.
        machines: how many the run has, all at one price.
    """
    spent = machine_usd(report) * machines
    cap = f" of {format_usd(budget_usd)}" if budget_usd is not None else ""
    left = timedelta(seconds=max(0.0, report.deadline_at - report.now))
    tasks = report.each_task
    counts, metrics = progress_words(next(iter(tasks.values())).progress) if len(tasks) == 1 else ([], [])
    parts = (
        *([str(report.command.state)] if len(tasks) == 1 else [_describe_tasks(tasks)]),
        *counts,
        *metrics[:1],
        f"{format_usd(spent)}{cap}",
        f"gone in {format_duration(left)}",
        load_words(report.sample),
        *metrics[1:],
    )
    # A metric's name with line ends would otherwise be drawn as several lines.
    return clean_line("  ".join(part for part in parts if part))


def _describe_tasks(tasks: Mapping[str, TaskReport]) -> str:
    """Name each task with its first count, or its state if it has none or isn't running."""
    return ", ".join(f"{name} {_describe_task(task)}" for name, task in tasks.items())


def _describe_task(task: TaskReport) -> str:
    counts, _ = progress_words(task.progress)
    return counts[-1] if counts and task.command.state == "running" else str(task.command.state)


def machine_usd(report: MachineReport) -> Decimal:
    """Return what the machine has cost since its creation, according to its own clock."""
    try:
        rate = Decimal(report.usd_per_hour)
    except InvalidOperation:
        rate = Decimal(0)
    return price_usd(rate, timedelta(seconds=max(0.0, report.now - report.created)))


def progress_words(progress: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """Return counts and metrics from the command's own status.json, which may hold anything."""
    if not progress:
        return [], []
    counts = [
        f"{unit} {progress[unit]}{_of(progress.get(f'{unit}s'))}"
        for unit in ("epoch", "step")
        if _is_count(progress.get(unit))
    ]
    metrics = progress.get("metrics")
    found = sorted(metrics.items(), key=_importance) if isinstance(metrics, dict) else []
    return counts, [f"{clean_line(clip(name, _NAME))} {value:.4g}" for name, value in found if _is_number(value)][:3]


def _importance(metric: tuple[str, object]) -> tuple[bool, bool, str]:
    """Sort key: the loss comes first, then metrics named after it."""
    name = metric[0]
    return name != "loss", "loss" not in name, name


def load_words(sample: Sample | None) -> str:
    """Describe the load of the GPUs, or of the processors if there is none; `?` for a GPU whose load is unknown."""
    if sample is None:
        return ""
    if not sample.gpus:
        return f"CPU {sample.cpu_percent:.0f}%"
    return "GPU " + " ".join("?" if gpu.use_percent is None else f"{gpu.use_percent:.0f}%" for gpu in sample.gpus)


def machines_words(machines: Sequence[Machine]) -> str:
    """Describe a run's machines: `aws (ready)`, `aws (3 ready, 1 booting)`."""
    counts = Counter(str(machine.state) for machine in machines)
    if len(machines) == 1:
        return f"{machines[0].provider} ({machines[0].state})"
    return f"{machines[0].provider} ({', '.join(f'{count} {state}' for state, count in counts.items())})"


def _of(total: object) -> str:
    return f"/{total}" if _is_count(total) else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
