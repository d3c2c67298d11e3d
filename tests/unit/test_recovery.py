"""When a run that has lost its machine goes on on another."""

from __future__ import annotations

import pytest

from orchestrator.core.machine import EndedBy, MachineEnd
from orchestrator.core.recovery import is_loss
from orchestrator.core.report import SPOT_NOTICE, Command, RunState

RUNNING = Command(state=RunState.RUNNING)
RECLAIMED = Command(state=RunState.STOPPED, reason=SPOT_NOTICE)
STOPPED = Command(state=RunState.STOPPED, reason="an operator's stop")
FAILED = Command(state=RunState.FAILED)


def ended(by: EndedBy) -> MachineEnd:
    return MachineEnd(by=by, says="as the provider says")


@pytest.mark.parametrize("command", [None, RUNNING], ids=["nobody knows the command", "the command ran"])
@pytest.mark.parametrize(
    ("end", "lost"),
    [
        (None, True),
        (ended(EndedBy.PROVIDER), True),
        (ended(EndedBy.ITSELF), False),
        (ended(EndedBy.DEADLINE), False),
        (ended(EndedBy.SOMEBODY), False),
    ],
    ids=["nobody knows", "the provider", "itself", "its deadline", "somebody"],
)
def test_who_ended_the_machine_decides(command: Command | None, end: MachineEnd | None, lost: bool) -> None:
    """What was taken away, or is gone for no known reason, is replaced; a wish is respected."""
    assert is_loss(command, end) is lost


@pytest.mark.parametrize("by", EndedBy)
def test_a_command_that_gave_way_to_a_reclaim_goes_on(by: EndedBy) -> None:
    """Whoever ended the machine in its last two minutes: the run had lost it by then."""
    assert is_loss(RECLAIMED, ended(by))


@pytest.mark.parametrize("command", [STOPPED, FAILED], ids=["stopped", "failed"])
def test_a_command_that_is_over_needs_no_machine(command: Command) -> None:
    """A stop was somebody's wish, and what has failed for good fails again."""
    assert not is_loss(command, None)
    assert not is_loss(command, ended(EndedBy.PROVIDER))
