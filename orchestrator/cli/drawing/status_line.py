"""Makes the status line of a run from its machine's report."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from orchestrator.core.protocol.decoding import clip
from orchestrator.core.values.cost import price_usd
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.core.protocol.report import MachineReport, Sample

_NAME = 40
"""The most characters of a metric's name, to leave room for others on the line."""


def status_line_of(report: MachineReport, budget_usd: Decimal | None) -> str:
    """Join state, progress with its first metric, cost, time left, and load; the end is cut off first."""
    spent = machine_usd(report)
    cap = f" of {format_usd(budget_usd)}" if budget_usd is not None else ""
    left = timedelta(seconds=max(0.0, report.deadline_at - report.now))
    counts, metrics = progress_words(report.progress)
    parts = (
        str(report.command.state),
        *counts,
        *metrics[:1],
        f"{format_usd(spent)}{cap}",
        f"gone in {format_duration(left)}",
        load_words(report.sample),
        *metrics[1:],
    )
    # A metric's name with line ends would otherwise be drawn as several lines.
    return clean_line("  ".join(part for part in parts if part))


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


def _of(total: object) -> str:
    return f"/{total}" if _is_count(total) else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
