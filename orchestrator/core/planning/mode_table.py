"""Tables before a launch: what each mode of a job costs against a budget, and what it costs on each machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal

from orchestrator.core.job import Job
from orchestrator.core.offer import Offer
from orchestrator.core.planning.expecting import Source
from orchestrator.core.values.cost import price_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeRow:
    """What one mode of a job needs.

    Attributes:
        mode: its name, and the names of its arguments.
        offer: what a launch would rent; None if nothing.
        expected: how long a run takes; None if that is unknown.
        source: what that is based on.
        usd: what a run costs in that time.
        worst_usd: the most that a run can cost, until its deadline.
        runs: how many are planned.
        planned_usd: what those cost together; None if that is unknown.
        total_usd: what those of this mode and of all before it cost; None if that is unknown.
        problem: why it can't be launched as the file says; empty if it can.
    """

    mode: str
    runs: int
    offer: Offer | None = None
    expected: timedelta | None = None
    source: Source = Source.UNKNOWN
    usd: Decimal | None = None
    worst_usd: Decimal | None = None
    planned_usd: Decimal | None = None
    total_usd: Decimal | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTable:
    """What the planned runs of a job cost against a budget.

    Attributes:
        planned_usd: what all planned runs cost; None if that of one is unknown.
        buffer_usd: what is left of the budget; negative if it isn't enough, None if that is unknown.
        prices: provider -> the source of its prices.
    """

    job: str
    rows: tuple[ModeRow, ...]
    budget_usd: Decimal | None = None
    planned_usd: Decimal | None = None
    buffer_usd: Decimal | None = None
    prices: Mapping[str, str] = field(default_factory=dict)


def add_up(job: str, rows: Iterable[ModeRow], budget_usd: Decimal | None, prices: Mapping[str, str]) -> ModeTable:
    """Add up what the planned runs of all modes cost; an unknown cost stays unknown in every sum."""
    summed: list[ModeRow] = []
    total: Decimal | None = Decimal(0)
    for row in rows:
        planned = Decimal(0) if not row.runs else None if row.usd is None else row.usd * row.runs
        total = None if total is None or planned is None else total + planned
        summed.append(replace(row, planned_usd=planned, total_usd=total))
    left = None if budget_usd is None or total is None else budget_usd - total
    return ModeTable(
        job=job, rows=tuple(summed), budget_usd=budget_usd, planned_usd=total, buffer_usd=left, prices=prices
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a mode takes and costs on a machine.

    Attributes:
        source: what the time is based on.
        usd: its cost at the machine's price.
        same_gpus: the job file's time, for another type of machine with the same GPUs.
    """

    expected: timedelta
    source: Source
    usd: Decimal
    same_gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRow:
    """A machine, and each mode on it.

    Attributes:
        estimates: mode -> its estimate; None if its time there is unknown. A mode that can't be launched there is left
            out.
        over_budget: the modes whose worst case is over their budget there, so that a launch is refused.
    """

    offer: Offer
    estimates: Mapping[str, Estimate | None]
    over_budget: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferTable:
    """The machines on which the modes of a job can be launched.

    Attributes:
        modes: the columns.
        problems: mode -> why it can't be launched anywhere.
        prices: provider -> the source of its prices.
    """

    job: str
    modes: tuple[str, ...]
    rows: tuple[OfferRow, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, str] = field(default_factory=dict)


def modes_by_problem(problems: Mapping[str, str]) -> list[str]:
    """Return each problem once, after the modes that have it: "fast, full: ..."."""
    modes: dict[str, list[str]] = {}
    for mode, problem in problems.items():
        modes.setdefault(problem, []).append(mode)
    return [f"{', '.join(names)}: {problem}" for problem, names in modes.items()]


def estimate(
    job: Job, offer: Offer, usual: timedelta | None, expected: timedelta | None, source: Source, *, same_gpus: bool
) -> Estimate | None:
    """Return what a job takes and costs on a machine; None if its time there is unknown.

    Args:
        job: the job in a mode.
        offer: the machine.
        usual: what runs on this type took; None if there were none.
        expected: the job file's time, if it is for this machine's GPUs.
        source: what that is based on.
        same_gpus: it is for another type of machine.
    """
    duration = expected if usual is None else usual
    if duration is None:
        return None
    billed = max(duration, offer.billed_for_at_least)
    return Estimate(
        expected=duration,
        source=source if usual is None else Source.RUNS,
        usd=price_usd(offer.total_usd_per_hour * job.num_nodes, billed) + offer.once_usd,
        same_gpus=same_gpus and usual is None,
    )
