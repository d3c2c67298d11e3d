"""Draws the tables before a launch: modes against a budget, and modes on each machine."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from orchestrator.cli.drawing.render import print_json
from orchestrator.cli.terminal.table import Table
from orchestrator.core.offer import Offer
from orchestrator.core.planning.expecting import Source
from orchestrator.core.planning.mode_table import Estimate, ModeRow, ModeTable, OfferRow, OfferTable, modes_by_problem
from orchestrator.core.values.units import format_duration, format_usd

UNKNOWN = "?"
_MARKS = {Source.RUNS: "m", Source.PUBLISHED: "p", Source.ESTIMATED: "e", Source.FILE: "f"}
_MEANINGS = {
    "m": "m: measured, in earlier runs on that type of machine",
    "p": "p: published, by the job file's `expect`",
    "e": "e: estimated, by the job file's `expect`",
    "f": "f: by the job file's `expect`",
    "=": "=: for another machine with the same GPUs, at this one's price; not measured here",
    UNKNOWN: "?: unknown until a run has been measured there",
    "!": "!: refused there, because the worst case is over the mode's budget",
    "-": "-: can't be launched there",
}


def print_modes(table: ModeTable, *, as_json: bool) -> None:
    """Print what each mode costs, and what its planned runs cost together."""
    if as_json:
        print_json(_modes_as_data(table))
        return
    shown = Table("mode", "machine", "time", "cost", "worst", "runs", "planned", "together", names=("mode", "machine"))
    for row in table.rows:
        shown.add_row(*_cells(row))
    if table.buffer_usd is not None and table.budget_usd is not None:
        left = format_usd(max(table.buffer_usd, Decimal(0)))
        shown.add_row("buffer", "", "", "", "", "", left, format_usd(table.budget_usd))
    shown.print()
    _print_below(_below(table))


def _print_below(lines: Iterable[str]) -> None:
    """Print lines below a table, folded on a terminal."""
    room = shutil.get_terminal_size().columns
    for line in filter(None, lines):
        folds = sys.stdout.isatty()
        print(textwrap.fill(line, room, subsequent_indent="  ", break_on_hyphens=False) if folds else line)


def _cells(row: ModeRow) -> tuple[str, ...]:
    time = _time(row.expected, row.source)
    money = (_usd(row.usd), _usd(row.worst_usd))
    planned = (_usd(row.planned_usd), _usd(row.total_usd))
    return row.mode, _machine(row.offer), time, *money, str(row.runs), *planned


def _below(table: ModeTable) -> Iterator[str]:
    yield from modes_by_problem({row.mode: row.problem for row in table.rows if row.problem})
    if table.planned_usd is None:
        unknown = ", ".join(row.mode for row in table.rows if row.planned_usd is None)
        yield f"The planned runs cost an unknown amount: nothing says what those of {unknown} cost."
    elif table.buffer_usd is not None and table.buffer_usd < 0:
        yield f"The planned runs cost {format_usd(-table.buffer_usd)} more than the budget."
    marks = {_MARKS[row.source] for row in table.rows if row.expected is not None}
    marks |= {UNKNOWN for row in table.rows if row.expected is None}
    yield from _legend(marks, table.prices)


def _legend(marks: set[str], prices: Mapping[str, str]) -> Iterator[str]:
    yield "; ".join(meaning for mark, meaning in _MEANINGS.items() if mark in marks)
    yield f"Prices: {'; '.join(f'{provider}: {basis}' for provider, basis in prices.items())}."


def print_offers(table: OfferTable, *, as_json: bool) -> None:
    """Print what each mode takes and costs on each machine."""
    if as_json:
        print_json(_offers_as_data(table))
        return
    names = ("machine", "where", "GPU")
    shown = Table(*names, "VRAM each", "price/h", *table.modes, names=names)
    marks: set[str] = set()
    for row in table.rows:
        cells = [_estimate(row, mode) for mode in table.modes]
        marks |= {mark for cell in cells for mark in (cell.split() or [""])[-1].strip("()")}
        shown.add_row(
            _machine(row.offer),
            row.offer.place,
            str(row.offer.accelerators or "-"),
            f"{row.offer.gpu_memory_gib:.0f} GiB" if row.offer.accelerators else "-",
            format_usd(row.offer.total_usd_per_hour),
            *cells,
        )
    shown.print()
    _print_below((*modes_by_problem(table.problems), *_legend(marks, table.prices)))


def _estimate(row: OfferRow, mode: str) -> str:
    if mode not in row.estimates:
        return "-"
    found, refused = row.estimates[mode], "!" if mode in row.over_budget else ""
    if found is None:
        return UNKNOWN + refused
    mark = _MARKS[found.source] + ("=" if found.same_gpus else "") + refused
    return f"{format_duration(found.expected)}, {format_usd(found.usd)} ({mark})"


def _machine(offer: Offer | None) -> str:
    if offer is None:
        return "-"
    return offer.instance_type + (" (spot)" if offer.spot else "")


def _time(expected: timedelta | None, source: Source) -> str:
    return UNKNOWN if expected is None else f"{format_duration(expected)} ({_MARKS[source]})"


def _usd(amount: Decimal | None) -> str:
    return UNKNOWN if amount is None else format_usd(amount)


def _modes_as_data(table: ModeTable) -> dict[str, Any]:
    return {
        "job": table.job,
        "budget_usd": table.budget_usd,
        "planned_usd": table.planned_usd,
        "buffer_usd": table.buffer_usd,
        "prices": dict(table.prices),
        "modes": [
            {
                "mode": row.mode,
                "offer": row.offer,
                **_time_as_data(row.expected, row.source),
                "usd": row.usd,
                "worst_usd": row.worst_usd,
                "runs": row.runs,
                "planned_usd": row.planned_usd,
                "total_usd": row.total_usd,
                "problem": row.problem,
            }
            for row in table.rows
        ],
    }


def _time_as_data(expected: timedelta | None, source: Source) -> dict[str, Any]:
    return {"expected_seconds": expected.total_seconds() if expected is not None else None, "source": source}


def _offers_as_data(table: OfferTable) -> dict[str, Any]:
    return {
        "job": table.job,
        "modes": list(table.modes),
        "prices": dict(table.prices),
        "problems": dict(table.problems),
        "offers": [
            {
                "offer": row.offer,
                "modes": {mode: _estimate_as_data(found) for mode, found in row.estimates.items()},
                "over_budget": sorted(row.over_budget),
            }
            for row in table.rows
        ],
    }


def _estimate_as_data(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {**_time_as_data(found.expected, found.source), "usd": found.usd, "same_gpus": found.same_gpus}
