"""Prices a plan, estimates how long it takes, and refuses it if it is over budget or too short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from orchestrator.core.actions import Action, CreateMachine, StartCommand
from orchestrator.core.errors import BadRequestError, OverBudgetError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.offer import Offer
from orchestrator.core.plan import ModePrice, Observed, Plan
from orchestrator.core.planning.expecting import expect_of
from orchestrator.core.values.cost import price_usd
from orchestrator.core.values.units import cents, format_duration, format_usd

SHORTEST = timedelta(minutes=2)
"""The least time that a machine must have left when it is created, or when its deadline is moved."""

_CHEAPER = "shorten the deadline with --ttl, raise --budget, or choose a cheaper offer (`kedge offers`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The costs of a plan's machines together, and until when they run.

    Attributes:
        instance_type: of its first offer; empty for that of the machines that the run has.
        most_usd_per_hour: of its dearest offer.
        once_usd: one-time costs of the first offer.
        most_once_usd: one-time costs of all offers together.
        at_least: the time that is billed from now on, even if the machine is gone sooner.
    """

    usd_per_hour: Decimal
    most_usd_per_hour: Decimal
    deadline_at: datetime
    instance_type: str = ""
    once_usd: Decimal = Decimal(0)
    most_once_usd: Decimal = Decimal(0)
    at_least: timedelta = timedelta(0)


def terms_of(machines: Sequence[Machine], now: datetime) -> Terms:
    """Return the terms of machines that exist."""
    rate = sum((machine.usd_per_hour for machine in machines), Decimal(0))
    return Terms(
        usd_per_hour=rate,
        most_usd_per_hour=rate,
        deadline_at=max(machine.deadline_at for machine in machines),
        at_least=max(machine.created_at + machine.billed_for_at_least - now for machine in machines),
    )


def most_once_usd(offers: Iterable[Offer]) -> Decimal:
    """Return the highest total of one-time costs: their sum, because each refused offer has created its volumes."""
    return sum((offer.once_usd for offer in offers), Decimal(0))


def lifetime_of(spec: LaunchSpec, now: datetime) -> timedelta:
    """Return how long a machine created now may live: to its deadline, or to the end of a recovered run.

    Raises:
        BadRequestError: the run's time is over.
    """
    if spec.until is None:
        return spec.job.time_limit
    left = spec.until - now
    if left < SHORTEST:
        raise BadRequestError(
            f"the time of run {spec.run_id} is over",
            why=f"a recovered run has one deadline for all its machines: {spec.until:%F %H:%M} UTC",
            fix=f"give it more with `kedge resume {spec.run_id} --ttl {format_duration(spec.job.time_limit)}`",
        )
    return min(spec.job.time_limit, left)


def leave_out_over_budget(spec: LaunchSpec, observed: Observed) -> Observed:
    """Leave out the offers that could cost more than the budget.

    If all could, keep the cheapest: `refuse_over_budget` then names its worst case.
    """
    if spec.job.budget_usd is None or not observed.offers:
        return observed
    within: list[Offer] = []
    for offer in observed.offers:
        if is_within_budget(spec, observed, *within, offer):
            within.append(offer)
    return replace(
        observed, offers=tuple(within) or (min(observed.offers, key=partial(_worst_usd_of, spec, observed)),)
    )


def is_within_budget(spec: LaunchSpec, observed: Observed, *offers: Offer) -> bool:
    """Tell whether the worst case of a launch that may use these offers is within the budget, if there is one."""
    budget = spec.job.budget_usd
    return budget is None or cents(_worst_usd_of(spec, observed, *offers)) <= cents(budget)


def _worst_usd_of(spec: LaunchSpec, observed: Observed, *offers: Offer) -> Decimal:
    rate = max(offer.worst_usd_per_hour for offer in offers)
    billed = max(lifetime_of(spec, observed.now), *(offer.billed_for_at_least for offer in offers))
    return observed.spent_usd + price_usd(rate * spec.job.num_nodes, billed) + most_once_usd(offers)


def price_plan(spec: LaunchSpec, observed: Observed, actions: tuple[Action, ...], terms: Terms) -> Plan:
    """Add a price, a duration and a worst case to actions.

    Raises:
        BadRequestError: the job can't end before its machine's deadline.
    """
    left = max(timedelta(0), terms.deadline_at - observed.now)
    modes = _price_modes(spec, observed, terms)
    expected = _sum_known(mode.expected for mode in modes)
    basis = modes[0].basis if len(modes) == 1 else "each mode's"
    # A resumed mode has less to do than a whole one; how much less is unknown.
    known = sum((mode.expected for mode in modes if mode.expected is not None), timedelta(0))
    if known > left and _begins(observed, actions):
        _refuse_too_short(spec, known, left, creates=any(isinstance(action, CreateMachine) for action in actions))
    return Plan(
        run_id=spec.run_id,
        actions=actions,
        usd_per_hour=terms.usd_per_hour,
        most_usd_per_hour=terms.most_usd_per_hour,
        once_usd=terms.most_once_usd,
        worst_usd=_worst_usd(observed, terms),
        expected=expected,
        expected_usd=None
        if expected is None
        else price_usd(terms.usd_per_hour, max(expected, terms.at_least)) + terms.once_usd,
        budget_usd=spec.job.budget_usd,
        deadline_at=terms.deadline_at,
        basis=f"prices: {observed.offers_basis}; time: {basis}",
        revision=observed.revision,
        modes=modes if len(modes) > 1 else (),
    )


def fits_budget(spec: LaunchSpec, observed: Observed, terms: Terms) -> bool:
    """Tell whether the worst case of these terms is within the budget, if there is one."""
    budget = spec.job.budget_usd
    return budget is None or cents(_worst_usd(observed, terms)) <= cents(budget)


def _worst_usd(observed: Observed, terms: Terms) -> Decimal:
    billed = max(timedelta(0), terms.deadline_at - observed.now, terms.at_least)
    return observed.spent_usd + price_usd(terms.most_usd_per_hour, billed) + terms.most_once_usd


def _begins(observed: Observed, actions: tuple[Action, ...]) -> bool:
    """Tell whether a mode begins, on a new machine or on the one that the run has."""
    anew = any(isinstance(action, StartCommand) and action.mode and not action.resumes for action in actions)
    return anew or (not observed.has_results and any(isinstance(action, CreateMachine) for action in actions))


def _price_modes(spec: LaunchSpec, observed: Observed, terms: Terms) -> tuple[ModePrice, ...]:
    """Price the present mode and those that follow; the first one has the one-time costs."""
    usual = (observed.usual_durations, *observed.usual_later, *({} for _ in spec.later))
    kind = terms.instance_type or observed.machine_type
    prices: list[ModePrice] = []
    for number, job in enumerate((spec.job, *spec.later)):
        expectation = expect_of(job, usual[number].get(kind), kind)
        expected, basis = expectation.duration, expectation.says
        once = terms.once_usd if not number else Decimal(0)
        usd = price_usd(terms.usd_per_hour, expected) + once if expected is not None else None
        before = prices[-1].total_usd if prices else Decimal(0)
        total = None if usd is None or before is None else before + usd
        prices.append(ModePrice(mode=job.mode, expected=expected, usd=usd, total_usd=total, basis=basis))
    return tuple(prices)


def _sum_known(durations: Iterable[timedelta | None]) -> timedelta | None:
    """Add durations up; None if one of them is unknown."""
    total = timedelta(0)
    for duration in durations:
        if duration is None:
            return None
        total += duration
    return total


def refuse_over_budget(plan: Plan, *, fix: str = _CHEAPER) -> None:
    """Refuse a plan whose worst case exceeds its budget; `fix` says what would help.

    Raises:
        OverBudgetError: its worst case exceeds the budget.
    """
    if plan.budget_usd is not None and cents(plan.worst_usd) > cents(plan.budget_usd):
        worst, budget = format_usd(plan.worst_usd), format_usd(plan.budget_usd)
        once = f", {format_usd(plan.once_usd)} once" if plan.once_usd else ""
        raise OverBudgetError(
            f"the worst case costs {worst}, over the budget of {budget}",
            why=f"{format_usd(plan.most_usd_per_hour)}/h until the deadline{once}, and what the run has cost so far",
            fix=fix,
        )


def _refuse_too_short(spec: LaunchSpec, expected: timedelta, left: timedelta, *, creates: bool) -> None:
    modes = [job.mode for job in (spec.job, *spec.later)]
    named = f"{spec.job.name} in mode{'s' if spec.later else ''} {', '.join(modes)}"
    what = named if spec.later or not creates else spec.job.name
    raise BadRequestError(
        f"{what} is expected to take {format_duration(expected)}, but its machine is gone in {format_duration(left)}",
        why="the deadline ends the machine whether the run is done or not",
        fix=f"give it more time, for example --ttl {format_duration(expected * 1.5).replace(' ', '')}"
        if creates
        else extend_fix(spec.run_id, expected - left),
    )


def extend_fix(run_id: str, missing: timedelta) -> str:
    """Say how to give a run's existing machine more time: the fix of an error about its deadline."""
    # In whole minutes, with a quarter more than is missing.
    minutes = -(-missing * 1.25 // timedelta(minutes=1))
    more = format_duration(timedelta(minutes=minutes)).replace(" ", "")
    return f"give its machine more time, for example `kedge extend {run_id} {more}`"
