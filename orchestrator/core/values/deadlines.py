"""How a machine's deadline is moved, and how that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.values.units import format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedDeadline:
    """One machine's deadline, before it is moved and after.

    Attributes:
        usd_per_hour: price of the machine and its disks.
    """

    machine_id: str
    before: datetime
    after: datetime
    usd_per_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDeadline:
    """What limits the next machine of a recovered run.

    Attributes:
        until: the one deadline of all its machines.
        time_limit: how long each of them may live, from its creation.
    """

    until: datetime
    time_limit: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRun:
    """A recovered run's own deadline, before it is moved and after."""

    before: RunDeadline
    after: RunDeadline


def describe_moves(machines: Sequence[MovedDeadline], run: MovedRun | None) -> str:
    """Describe where deadlines are moved; the run's own is shown if it has no machine."""
    if machines or run is None:
        return ", ".join(_describe_move(each) for each in machines)
    return f"the run's from {_instant(run.before.until)} to {_instant(run.after.until)}"


def _describe_move(move: MovedDeadline) -> str:
    rate = f" at {format_usd(move.usd_per_hour)}/h" if move.usd_per_hour else ""
    return f"{move.machine_id} from {_instant(move.before)} to {_instant(move.after)}{rate}"


def _instant(at: datetime) -> str:
    return f"{at:%F %H:%M} UTC"
