"""Decides whether a run that has lost its machine continues on another one."""

from __future__ import annotations

from orchestrator.core.machine import EndedBy, MachineEnd
from orchestrator.core.protocol.report import Command


def is_loss(command: Command | None, end: MachineEnd | None) -> bool:
    """Tell whether a machine was lost: nobody asked for its end.

    Args:
        command: its last known state; None if unknown.
        end: how the machine ended; None if unknown.
    """
    if command is not None and command.state.is_over:
        is_wish = end is not None and end.by is EndedBy.SOMEBODY
        return command.was_reclaimed or (command.lost_peer and not is_wish)
    return end is None or end.by in (EndedBy.PROVIDER, EndedBy.START)


def describe_end(provider: str, end: MachineEnd) -> str:
    """Describe who ended a machine, quoting the provider."""
    who = {
        EndedBy.PROVIDER: f"{provider} took it away",
        EndedBy.START: f"{provider} could not start it",
        EndedBy.ITSELF: "it ended by itself",
        EndedBy.DEADLINE: "its deadline had passed",
        EndedBy.SOMEBODY: f"somebody ended it at {provider}",
    }
    return f"{who[end.by]} ({end.says})"
