"""Whether a command that is at work has stopped getting on: hung, though it is alive and its machine bills."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.core.job import Expect
from orchestrator.core.report import MachineReport, RunState

PATIENCE = timedelta(minutes=10)
"""Most trainings write a line of their log far more often."""


def stalled_for(report: MachineReport, expect: Expect) -> timedelta | None:
    """Return for how long a command has written no log, no status.json and no checkpoint; None while that is normal.

    Until its first step a command may compile, download or tune in silence: a job says for how long with
    `expect: {first_step: ...}`. A restarted command starts that time anew.
    """
    if report.command.state is not RunState.RUNNING:
        return None
    at_work = timedelta(seconds=report.now - report.command.since)
    if expect.first_step is not None and at_work < expect.first_step:
        return None
    silence = min(at_work, timedelta(seconds=report.now - report.advanced))
    return silence if silence > PATIENCE else None
