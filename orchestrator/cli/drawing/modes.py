"""Draws the modes of a run: those that it has had, and those that follow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.core.modes import mode_key, mode_title
from orchestrator.core.values.units import format_duration, format_usd

if TYPE_CHECKING:
    from orchestrator.core.job import EarlierMode, LaunchSpec
    from orchestrator.core.plan import ModePrice


def mode_words(spec: LaunchSpec) -> str:
    """Say in which of several modes a run is; empty for a run with only one."""
    total = len(spec.earlier) + 1 + len(spec.later)
    return f", mode {spec.sequence + 1} of {total}" if total > 1 else ""


def mode_lines(spec: LaunchSpec, modes: Sequence[EarlierMode], *, is_live: bool) -> list[str]:
    """Describe each of several modes in a line; the present one is the last of `modes`.

    Nothing follows if the run has ended, or if the present mode has failed.
    """
    if len(modes) < 2 and not spec.later:
        return []
    unit = " of machine time" if spec.job.num_nodes > 1 else ""
    had = [
        f"  mode {mode_title(spec, sequence)}: {mode.outcome or 'not started'}, "
        f"{format_duration(timedelta(seconds=mode.seconds))}{unit}, {format_usd(mode.usd)}"
        for sequence, mode in enumerate(modes)
    ]
    follows = is_live and not (modes and modes[-1].outcome == "failed")
    said = "follows" if follows else "not started"
    return had + [f"  mode {number}-{job.mode}: {said}" for number, job in enumerate(spec.later, len(modes) + 1)]


def modes_as_data(spec: LaunchSpec, modes: Sequence[EarlierMode]) -> list[dict[str, Any]]:
    """Return the modes of a run as JSON-ready data."""
    return [
        {
            "mode": mode.mode,
            "folder": mode_key(spec, sequence),
            "outcome": mode.outcome,
            "seconds": mode.seconds,
            "usd": mode.usd,
        }
        for sequence, mode in enumerate(modes)
    ]


def name_modes(names: Sequence[str]) -> str:
    """Name the modes that a plan runs, after a comma; empty for a job without modes."""
    if not any(names):
        return ""
    return f", mode{'s' if len(names) > 1 else ''} {', '.join(names)}"


def prices_as_data(modes: Sequence[ModePrice]) -> list[dict[str, Any]]:
    """Return the prices of several modes as JSON-ready data."""
    return [
        {
            "mode": mode.mode,
            "expected_seconds": mode.expected.total_seconds() if mode.expected is not None else None,
            "usd": mode.usd,
            "total_usd": mode.total_usd,
            "basis": mode.basis,
        }
        for mode in modes
    ]


def price_lines(modes: Sequence[ModePrice]) -> list[str]:
    """Draw the time and the cost of each of several modes, and of those up to it together."""
    if not modes:
        return []
    rows = [["mode", "time", "cost", "together"]]
    for mode in modes:
        time = format_duration(mode.expected) if mode.expected is not None else "unknown"
        costs = [format_usd(usd) if usd is not None else "-" for usd in (mode.usd, mode.total_usd)]
        rows.append([mode.mode, time, *costs])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
