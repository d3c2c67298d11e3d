"""Prices a plan, estimates how long it takes, and refuses it if it is over budget or too short."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.actions import Action, CreateMachine
from orchestrator.core.errors import BadRequestError, OverBudgetError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Observed, Plan
from orchestrator.core.values.cost import price_usd
from orchestrator.core.values.units import cents, format_duration, format_usd

_SHORTEST = timedelta(minutes=2)
"""The least lifetime that a new machine must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The costs of a plan's machine, and until when they run.

    Attributes:
        most_usd_per_hour: of its dearest offer.
        once_usd: one-time costs of the first offer.
        most_once_usd: one-time costs of all offers together.
        at_least: the time that is billed from now on, even if the machine is gone sooner.
    """

    usd_per_hour: Decimal
    most_usd_per_hour: Decimal
    deadline_at: datetime
    once_usd: Decimal = Decimal(0)
    most_once_usd: Decimal = Decimal(0)
    at_least: timedelta = timedelta(0)


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
    if left < _SHORTEST:
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
    lifetime = lifetime_of(spec, observed.now)

    def worst_usd(*offers: Offer) -> Decimal:
        rate = max(offer.worst_usd_per_hour for offer in offers)
        billed = max(lifetime, *(offer.billed_for_at_least for offer in offers))
        return observed.spent_usd + price_usd(rate, billed) + most_once_usd(offers)

    budget = cents(spec.job.budget_usd)
    within: list[Offer] = []
    for offer in observed.offers:
        if cents(worst_usd(*within, offer)) <= budget:
            within.append(offer)
    return replace(observed, offers=tuple(within) or (min(observed.offers, key=worst_usd),))


def price_plan(spec: LaunchSpec, observed: Observed, actions: tuple[Action, ...], terms: Terms) -> Plan:
    """Add a price, a duration and a worst case to actions.

    Raises:
        BadRequestError: the job can't end before its machine's deadline.
    """
    left = max(timedelta(0), terms.deadline_at - observed.now)
    expected, basis = _expectation(spec.job, observed)
    # A resumed run has less to do than a whole one; how much less is unknown.
    if not observed.has_results and any(isinstance(action, CreateMachine) for action in actions):
        _refuse_too_short(spec.job, expected, left)
    return Plan(
        run_id=spec.run_id,
        actions=actions,
        usd_per_hour=terms.usd_per_hour,
        most_usd_per_hour=terms.most_usd_per_hour,
        once_usd=terms.most_once_usd,
        worst_usd=observed.spent_usd
        + price_usd(terms.most_usd_per_hour, max(left, terms.at_least))
        + terms.most_once_usd,
        expected=expected,
        expected_usd=None
        if expected is None
        else price_usd(terms.usd_per_hour, max(expected, terms.at_least)) + terms.once_usd,
        budget_usd=spec.job.budget_usd,
        deadline_at=terms.deadline_at,
        basis=f"prices: {observed.offers_basis}; time: {basis}",
        revision=observed.revision,
    )


def refuse_over_budget(plan: Plan) -> None:
    """Refuse a plan whose worst case exceeds its budget.

    Raises:
        OverBudgetError: its worst case exceeds the budget.
    """
    if plan.budget_usd is not None and cents(plan.worst_usd) > cents(plan.budget_usd):
        worst, budget = format_usd(plan.worst_usd), format_usd(plan.budget_usd)
        once = f", {format_usd(plan.once_usd)} once" if plan.once_usd else ""
        raise OverBudgetError(
            f"the worst case costs {worst}, over the budget of {budget}",
            why=f"{format_usd(plan.most_usd_per_hour)}/h until the deadline{once}, and what the run has cost so far",
            fix="shorten the deadline with --ttl, raise --budget, or choose a cheaper offer (`kedge offers`)",
        )


def _expectation(job: Job, observed: Observed) -> tuple[timedelta | None, str]:
    if observed.usual_duration is not None:
        return observed.usual_duration, "earlier runs of this job and mode"
    if job.expect.duration is not None:
        return job.expect.duration, "the job file's `expect`"
    return None, "unknown until a run has been measured"


def _refuse_too_short(job: Job, expected: timedelta | None, left: timedelta) -> None:
    if expected is not None and expected > left:
        raise BadRequestError(
            f"{job.name} is expected to take {format_duration(expected)}, but its machine is gone in "
            f"{format_duration(left)}",
            why="the deadline ends the machine whether the run is done or not",
            fix=f"give it more time, for example --ttl {format_duration(expected * 1.5).replace(' ', '')}",
        )
