"""Draws what runs have cost, each with its modes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.cli.drawing.modes import modes_as_data
from orchestrator.cli.drawing.render import print_json
from orchestrator.cli.terminal.table import Table
from orchestrator.core.modes import list_modes, mode_title
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.units import format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.app.looking import RunCost
    from orchestrator.core.job import EarlierMode


def costs(found: Sequence[RunCost], *, as_json: bool) -> None:
    """Print what each run has cost, and the total."""
    if as_json:
        print_json([_cost_as_data(cost) for cost in found])
        return
    if not found:
        print("No run has cost anything yet.")
        return
    table = Table("run", "mode", "machine time", "cost", "", names=("run", "mode"))
    for cost in found:
        spec = cost.record.spec
        table.add_row(spec.run_id, spec.job.mode or "-" if not spec.earlier else "all", *_cost_cells(cost))
        for sequence, mode in enumerate(_list(cost) if spec.earlier else ()):
            time, usd = format_duration(timedelta(seconds=mode.seconds)), format_usd(mode.usd)
            table.add_row("", mode_title(spec, sequence), time, usd, mode.outcome)
    table.print()
    print(f"Total: {format_usd(_total_usd(cost for cost in found if not cost.rehearsed))}")
    if rehearsed := _total_usd(cost for cost in found if cost.rehearsed):
        print(f"Rehearsed on this computer, and paid to nobody: {format_usd(rehearsed)}")


def _total_usd(found: Iterable[RunCost]) -> Decimal:
    return sum((spent_usd(cost.rentals, cost.now) for cost in found), start=Decimal(0))


def _cost_cells(cost: RunCost) -> list[str]:
    time = sum((rental.duration(cost.now) for rental in cost.rentals), timedelta(0))
    running = any(rental.until is None for rental in cost.rentals)
    return [
        format_duration(time),
        format_usd(spent_usd(cost.rentals, cost.now)),
        ", ".join([*(["rehearsed"] if cost.rehearsed else []), *(["running"] if running else [])]),
    ]


def _cost_as_data(cost: RunCost) -> dict[str, Any]:
    return {
        "run": cost.record.run_id,
        "spent_usd": spent_usd(cost.rentals, cost.now),
        "rehearsed": cost.rehearsed,
        "seconds": sum(rental.duration(cost.now).total_seconds() for rental in cost.rentals),
        "machines": cost.rentals,
        "modes": modes_as_data(cost.record.spec, _list(cost)),
    }


def _list(cost: RunCost) -> tuple[EarlierMode, ...]:
    return list_modes(cost.record.spec, cost.record.outcome, cost.rentals, cost.now)
