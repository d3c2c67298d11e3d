"""Tables of a job before its launch: its modes against a budget, and its modes on each machine. Nothing is created.

A provider is asked once for each kind of machine that the modes want, as a plan asks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.adapters.jobfile.lookup.find import find_job
from orchestrator.adapters.jobfile.lookup.listing import ListedMode, list_modes, planned_budget
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.values.limits import parse_limited_usd
from orchestrator.app.launch.launching import new_launch, read_launch_job
from orchestrator.app.root import App
from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.job import LaunchSpec, Resources
from orchestrator.core.offer import Offer
from orchestrator.core.plan import AfterStart, Observed
from orchestrator.core.planning.expecting import expect_of
from orchestrator.core.planning.launch import plan_launch
from orchestrator.core.planning.mode_table import (
    Estimate,
    ModeRow,
    ModeTable,
    OfferRow,
    OfferTable,
    add_up,
    estimate,
    modes_by_problem,
)
from orchestrator.core.planning.price import is_within_budget
from orchestrator.core.planning.tasks import leave_out_unfit

_BUDGET = "budget"
_OF_MACHINES = ("resources.accelerators", "resources.instance_type", "resources.provider")


@dataclass(slots=True, kw_only=True)
class _Market:
    """What providers sell for the modes of a job, each kind of machine asked for once."""

    app: App
    found: dict[tuple[str, Resources], tuple[Offer, ...]] = field(default_factory=dict)
    prices: dict[str, str] = field(default_factory=dict)
    job: str = ""

    def observe(self, spec: LaunchSpec) -> Observed:
        """Return what a plan would observe of a new run, without the laptop's code."""
        world, key = self.app.world(spec.provider), (spec.provider, spec.resources)
        self.job = spec.job.name
        if key not in self.found:
            self.found[key] = tuple(world.provider.offers(spec.resources))
            self.prices[spec.provider] = world.provider.offers_basis
        return Observed(
            now=self.app.clock.now(),
            offers=self.found[key],
            offers_basis=self.prices[spec.provider],
            usual_durations=self.app.ledger.usual_durations(spec.job),
            can_start_at_boot=world.provider.can_start_at_boot,
            keeps_results=world.store is not None,
            ends_by_itself=world.provider.ends_by_itself,
        )


def plan_modes(app: App, job_name: str | None, overrides: Overrides) -> ModeTable:
    """Price all modes of a job, with their planned runs, against a budget: that of the flag, else of `expect`.

    Each mode is planned as `kedge plan --mode` plans it, with its own deadline and the file's budget.

    Raises:
        BadRequestError: the job has no modes, or none of them can be launched.
    """
    path = _require_file(app, job_name)
    modes = list_modes(path)
    if not modes:
        raise BadRequestError(f"{path} has no `modes`", fix="leave --all-modes out: `kedge plan` prices the job")
    given, flags = overrides.value_of(_BUDGET), overrides.without(_BUDGET)
    budget = parse_limited_usd(given) if given is not None else planned_budget(path)
    market = _Market(app=app)
    rows: list[ModeRow] = []
    problems: dict[str, KedgeError] = {}
    for mode in modes:
        try:
            rows.append(_row_of(market, job_name, mode, flags))
        except KedgeError as err:
            problems[mode.usage] = err
            rows.append(ModeRow(mode=mode.usage, runs=mode.runs, problem=err.what))
    if len(problems) == len(modes):
        raise _refusal(problems, "look at one of them with `kedge plan --mode`")
    return add_up(market.job, rows, budget, market.prices)


def _require_file(app: App, job_name: str | None) -> Path:
    path = find_job(app.settings.cwd, job_name)
    if path is None:
        raise BadRequestError(
            "there is no kedge.yaml here or above", fix="name a job with --job; `kedge jobs` lists them"
        )
    return path


def _row_of(market: _Market, job_name: str | None, mode: ListedMode, flags: Overrides) -> ModeRow:
    spec = new_launch(market.app, job_name, mode.example, flags)
    observed = market.observe(spec)
    plan = plan_launch(spec, observed, AfterStart(destination=spec.results))
    (offer, *_), *_ = (action.offers for action in plan.actions if isinstance(action, CreateMachine))
    row = ModeRow(mode=mode.usage, runs=mode.runs, offer=offer, worst_usd=plan.worst_usd)
    if mode.is_open:
        return row
    expectation = expect_of(spec.job, observed.usual_durations.get(offer.instance_type), offer.instance_type)
    return replace(row, expected=expectation.duration, source=expectation.source, usd=plan.expected_usd)


def _refusal(problems: Mapping[str, KedgeError], otherwise: str) -> BadRequestError:
    """Return the error for modes none of which can be launched, with their fix if they have the same one."""
    fixes = {problem.fix for problem in problems.values()}
    shared = fixes.pop() if len(fixes) == 1 else ""
    return BadRequestError(
        "none of the modes can be launched",
        why="; ".join(modes_by_problem({mode: problem.what for mode, problem in problems.items()})),
        fix=shared or f"correct the job file, or {otherwise}",
    )


def plan_offers(app: App, job_name: str | None, mode: str | None, overrides: Overrides) -> OfferTable:
    """Price each mode of a job, or one of them, on each type of machine on which it can be launched.

    A time is measured on that type, or the job file's for the same GPUs; no other is guessed.

    Raises:
        BadRequestError: none of the modes can be launched.
    """
    path = _require_file(app, job_name)
    listed = list_modes(path) if mode is None else (ListedMode(usage=mode, example=mode),)
    market, columns = _Market(app=app), []
    problems: dict[str, KedgeError] = {}
    for each in listed or (ListedMode(usage="", example=""),):
        try:
            columns.append(_Column.read(market, job_name, each, overrides))
        except KedgeError as err:
            problems[each.usage or path.stem] = err
    if not columns:
        raise _refusal(problems, "look at what is for sale with `kedge offers`")
    offers = {_type_of(offer): offer for column in reversed(columns) for offer in reversed(column.observed.offers)}
    ordered = sorted(offers.values(), key=lambda offer: (offer.total_usd_per_hour, _type_of(offer)))
    return OfferTable(
        job=market.job,
        modes=tuple(column.name for column in columns),
        rows=tuple(_offer_row(columns, offer) for offer in ordered),
        problems={mode: problem.what for mode, problem in problems.items()},
        prices=market.prices,
    )


def _type_of(offer: Offer) -> tuple[str, str, bool]:
    return offer.provider, offer.instance_type, offer.spot


def _offer_row(columns: Sequence[_Column], offer: Offer) -> OfferRow:
    fit = [column for column in columns if any(_type_of(offer) == _type_of(other) for other in column.observed.offers)]
    return OfferRow(
        offer=offer,
        estimates={column.name: column.estimate(offer) for column in fit},
        over_budget=frozenset(
            column.name for column in fit if not is_within_budget(column.spec, column.observed, offer)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A mode, and the machines on which it can be launched, in the order of a launch.

    Attributes:
        observed: the machines, and what runs took on them.
        is_open: the time that it takes is unknown: it depends on values.
        wants: what the job file asks for in this mode, without flags: its expected time is for that.
        picked: flags choose the machine, so that the first offer may not be the one that the file means.
    """

    name: str
    spec: LaunchSpec
    observed: Observed
    is_open: bool
    wants: Resources
    picked: bool

    @classmethod
    def read(cls, market: _Market, job_name: str | None, mode: ListedMode, overrides: Overrides) -> _Column:
        spec = new_launch(market.app, job_name, mode.example or None, overrides)
        observed = leave_out_unfit(spec, market.observe(spec))
        if not observed.offers:
            raise NoCapacityError(f"no offer at {spec.provider} has what its resources ask for")
        return cls(
            name=mode.usage or spec.job.name,
            spec=spec,
            observed=observed,
            is_open=mode.is_open,
            wants=read_launch_job(market.app, job_name, mode.example or None, Overrides()).resources,
            picked=any(overrides.has(key) for key in _OF_MACHINES),
        )

    def estimate(self, offer: Offer) -> Estimate | None:
        """Return what the mode takes and costs on a machine; None if its time there is unknown."""
        if self.is_open:
            return None
        says = expect_of(self.spec.job, None, offer.instance_type)
        is_meant, same_gpus = self._is_meant(offer)
        return estimate(
            self.spec.job,
            offer,
            self.observed.usual_durations.get(offer.instance_type),
            says.duration if is_meant else None,
            says.source,
            same_gpus=same_gpus,
        )

    def _is_meant(self, offer: Offer) -> tuple[bool, bool]:
        """Tell whether the job file's time is for such a machine, and whether only its GPUs say so."""
        first = self.observed.offers[0]
        is_first = _type_of(offer)[:2] == _type_of(first)[:2] and not self.picked
        if self.wants.instance_type is not None:
            is_first = offer.instance_type == self.wants.instance_type
        gpus = self.wants.accelerators or (first.accelerators if not self.picked else None)
        same_gpus = gpus is not None and offer.accelerators == gpus
        return is_first or same_gpus, not is_first
