"""Whether a run that has no machine any more is to go on on another."""

from __future__ import annotations

from orchestrator.core.machine import EndedBy, MachineEnd
from orchestrator.core.report import Command


def is_loss(command: Command | None, end: MachineEnd | None) -> bool:
    """Tell whether a machine's end was nobody's wish.

    Args:
        command: its last known state; None where nobody knows.
        end: how the machine ended; None where nobody knows.
    """
    if command is not None and command.state.is_over:
        return command.was_reclaimed
    return end is None or end.by in (EndedBy.PROVIDER, EndedBy.START)


def describe_end(provider: str, end: MachineEnd) -> str:
    """Say who ended a machine, with the provider's own words."""
    who = {
        EndedBy.PROVIDER: f"{provider} took it away",
        EndedBy.START: f"{provider} could not start it",
        EndedBy.ITSELF: "it ended by itself",
        EndedBy.DEADLINE: "its deadline had come",
        EndedBy.SOMEBODY: f"somebody ended it at {provider}",
    }
    return f"{who[end.by]} ({end.says})"
