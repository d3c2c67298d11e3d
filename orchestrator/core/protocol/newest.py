"""Combines the reports of a run's machines: torchrun may choose the process that writes progress on any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from orchestrator.core.protocol.report import MachineReport, TaskReport


def combine_tasks(reports: Sequence[MachineReport]) -> dict[str, TaskReport]:
    """Return each task's report: its state by the first machine, progress and checkpoint as last written on any of all.

    How old these are is taken from the clock of the machine that wrote them; the returned times are on the first's.

    Args:
        reports: the head's first; empty for none.
    """
    return {name: _combine(name, task, reports) for name, task in (reports[0].each_task if reports else {}).items()}


def _combine(name: str, first: TaskReport, reports: Sequence[MachineReport]) -> TaskReport:
    now = reports[0].now
    seen = [(report.now, task) for report in reports if (task := report.each_task.get(name)) is not None]
    told = [(at - task.progress_at, task.progress) for at, task in seen if task.progress is not None]
    saved = [(at - task.checkpoint.written, task.checkpoint) for at, task in seen if task.checkpoint is not None]
    # min() prefers the first of equals, which is the head if agents of an earlier version don't know the time.
    age, progress = min(told, key=itemgetter(0)) if told else (now, None)
    old, checkpoint = min(saved, key=itemgetter(0)) if saved else (0.0, None)
    return replace(
        first,
        progress=progress,
        progress_at=now - age,
        checkpoint=replace(checkpoint, written=now - old) if checkpoint is not None else None,
    )
