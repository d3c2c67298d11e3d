"""Decides whether a running command hangs: its process is alive and its machine bills, but it makes no progress."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.job import Expect
from orchestrator.core.protocol.report import MachineReport, RunState

PATIENCE = timedelta(minutes=10)
"""How long a command may be silent; most trainings write to their log far more often."""


def stalled_for(report: MachineReport, expect: Expect) -> timedelta | None:
    """Return for how long a command has written no log, no status.json and no checkpoint; None while that is normal.

    Until its first step, a command may compile, download or tune silently; the job can say for how long, with
    `expect: {first_step: ...}`. A restart begins that period again.
    """
    if report.command.state is not RunState.RUNNING:
        return None
    at_work = timedelta(seconds=report.now - report.command.since)
    if expect.first_step is not None and at_work < expect.first_step:
        return None
    silence = min(at_work, timedelta(seconds=report.now - report.advanced))
    return silence if silence > PATIENCE else None
