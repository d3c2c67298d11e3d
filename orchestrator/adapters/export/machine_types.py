"""Chooses the AWS machine type of an export from the prices that come with kedge, without asking AWS."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal
from fnmatch import fnmatchcase

from orchestrator.adapters.export.model import Target
from orchestrator.adapters.providers.aws.market.catalog import (
    InstanceType,
    choose_types,
    no_such_count,
    wanted_patterns,
)
from orchestrator.adapters.providers.aws.market.snapshot import Price, Snapshot, read_snapshot, snapshot_path
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources

_AWS = "aws"


def resources_at_aws(resources: Resources) -> Resources:
    """Return what a job asks for, without what only another provider understands."""
    if resources.provider in (None, _AWS):
        return resources
    return replace(resources, regions=(), zone=None, instance_type=None, image_id=None)


def choose_type(resources: Resources, target: Target, sold: Collection[str] | None = None) -> InstanceType:
    """Return the cheapest type that fits, which has exactly the GPUs that the job asks for.

    Args:
        resources: of the job.
        target: for the error's text.
        sold: the types that the scheduler takes; None for all.

    Raises:
        BadRequestError: there is none, or kedge doesn't know the type that the job names.
    """
    resources = resources_at_aws(resources)
    snapshot = read_snapshot(snapshot_path())
    patterns = wanted_patterns(resources)
    named = tuple(kind for kind in snapshot.types if any(fnmatchcase(kind.name, pattern) for pattern in patterns))
    if not named:
        raise BadRequestError(
            f"kedge doesn't know the vCPUs and the memory of {' or '.join(patterns)}",
            why=f"it knows them from {snapshot.basis}",
            fix="name another type with --instance-type, or a GPU with --gpu; `kedge offers --provider aws --refresh` "
            "takes new prices",
        )
    fitting = choose_types(named, resources)
    if not fitting and resources.accelerators is not None:
        raise no_such_count(resources.accelerators, named)
    taken = [kind for kind in fitting if sold is None or kind.name in sold]
    if not taken:
        raise BadRequestError(
            f"{target.label} has no machine of type {' or '.join(kind.name for kind in fitting)}",
            fix="name another GPU with --gpu, or another type with --instance-type",
        )
    return min(taken, key=lambda kind: (_usd_per_hour(snapshot, kind, resources), kind.cpus))


def _usd_per_hour(snapshot: Snapshot, kind: InstanceType, resources: Resources) -> Decimal:
    regions = resources.regions or snapshot.regions
    costs = [_cost(price, spot=resources.use_spot) for price in snapshot.prices if price.type == kind.name]
    here = [
        _cost(price, spot=resources.use_spot)
        for price in snapshot.prices
        if price.type == kind.name and price.region in regions
    ]
    # A region without prices: those of the others compare as well.
    return min(here or costs, default=Decimal("Infinity"))


def _cost(price: Price, *, spot: bool) -> Decimal:
    known = [usd for usd in price.spot.values() if usd is not None] if spot else []
    return min(known, default=price.usd_per_hour)
