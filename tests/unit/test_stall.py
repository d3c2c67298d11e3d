"""A command that hangs is reported, but not one that was said to need long for its first step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.report import Command, RunState, TaskReport

HOUR = 3600.0
NOW = 10 * HOUR


def task(*, state: RunState = RunState.RUNNING, at_work: float, silent: float) -> TaskReport:
    """Describe a task that has been in a state for so many seconds, and silent for so many."""
    return TaskReport(command=Command(state=state, since=NOW - at_work), advanced=NOW - silent)


def test_a_command_that_writes_nothing_for_long_is_stalled() -> None:
    """Ten minutes without a log line, a status.json or a checkpoint."""
    assert stalled_for(task(at_work=HOUR, silent=601), NOW, None) == timedelta(seconds=601)
    assert stalled_for(task(at_work=HOUR, silent=599), NOW, None) is None


def test_nothing_counts_as_stalled_before_the_first_step_is_expected() -> None:
    """`expect: {first_step: 30m}` allows 30 minutes of silence after a start, and no longer."""
    first_step = timedelta(minutes=30)
    assert stalled_for(task(at_work=1799, silent=1799), NOW, first_step) is None
    assert stalled_for(task(at_work=1801, silent=1801), NOW, first_step) == timedelta(seconds=1801)
    assert stalled_for(task(at_work=HOUR, silent=700), NOW, first_step) == timedelta(seconds=700)


def test_silence_counts_from_the_start_of_an_attempt() -> None:
    """What an earlier attempt wrote long ago says nothing of one that has just begun."""
    assert stalled_for(task(at_work=60, silent=HOUR), NOW, None) is None


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_command_at_work_can_stall(state: RunState) -> None:
    """One that is over, restarting or setting up isn't training."""
    assert stalled_for(task(state=state, at_work=HOUR, silent=HOUR), NOW, None) is None
