"""A command that hangs is reported, but not one that was said to need long for its first step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core.job import Expect
from orchestrator.core.policy.stall import stalled_for
from orchestrator.core.protocol.report import Command, MachineReport, RunState

HOUR = 3600.0


def report(*, state: RunState = RunState.RUNNING, at_work: float, silent: float) -> MachineReport:
    """Describe a machine whose command has been in a state for so many seconds, and silent for so many."""
    command = Command(state=state, since=10 * HOUR - at_work)
    advanced = 10 * HOUR - silent
    return MachineReport(
        machine="m",
        run="r",
        now=10 * HOUR,
        created=0,
        deadline_at=0,
        usd_per_hour="1",
        command=command,
        advanced=advanced,
    )


def test_a_command_that_writes_nothing_for_long_is_stalled() -> None:
    """Ten minutes without a log line, a status.json or a checkpoint."""
    assert stalled_for(report(at_work=HOUR, silent=601), Expect()) == timedelta(seconds=601)
    assert stalled_for(report(at_work=HOUR, silent=599), Expect()) is None


def test_nothing_counts_as_stalled_before_the_first_step_is_expected() -> None:
    """`expect: {first_step: 30m}` allows 30 minutes of silence after a start, and no longer."""
    expect = Expect(first_step=timedelta(minutes=30))
    assert stalled_for(report(at_work=1799, silent=1799), expect) is None
    assert stalled_for(report(at_work=1801, silent=1801), expect) == timedelta(seconds=1801)
    assert stalled_for(report(at_work=HOUR, silent=700), expect) == timedelta(seconds=700)


def test_silence_counts_from_the_start_of_an_attempt() -> None:
    """What an earlier attempt wrote long ago says nothing of one that has just begun."""
    assert stalled_for(report(at_work=60, silent=HOUR), Expect()) is None


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_command_at_work_can_stall(state: RunState) -> None:
    """One that is over, restarting or setting up isn't training."""
    assert stalled_for(report(state=state, at_work=HOUR, silent=HOUR), Expect()) is None
