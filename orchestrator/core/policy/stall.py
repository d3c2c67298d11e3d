"""Decides whether a running command hangs: its process is alive and its machine bills, but it makes no progress."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.protocol.report import RunState, TaskReport

PATIENCE = timedelta(minutes=10)
"""How long a command may be silent; most trainings write to their log far more often."""


def stalled_for(task: TaskReport, now: float, first_step: timedelta | None) -> timedelta | None:
    """Return for how long a task has written no log, no status.json and no checkpoint; None while that is normal.

    Until its first step, a command may compile, download or tune silently; the job can say for how long, with
    `expect: {first_step: ...}`. A restart begins that period again.

    Args:
        task: what its machine reports.
        now: Unix seconds on the machine's clock.
        first_step: how long its first step may take from the command's start; None if the job doesn't say.
    """
    if task.command.state is not RunState.RUNNING:
        return None
    at_work = timedelta(seconds=now - task.command.since)
    if first_step is not None and at_work < first_step:
        return None
    silence = min(at_work, timedelta(seconds=now - task.advanced))
    return silence if silence > PATIENCE else None
