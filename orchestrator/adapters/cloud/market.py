"""The port for a cloud's offers, and an offers planner for clouds that sell whole machines at fixed prices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.offer import Accelerators, Offer

if TYPE_CHECKING:
    from orchestrator.core.job import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferList:
    """What is for sale now.

    Attributes:
        offers: the first is tried first.
        basis: where the prices come from, `live` or a date, with remarks.
        caveats: remarks about this account's machines, for the plan.
    """

    offers: Sequence[Offer]
    basis: str = "live"
    caveats: tuple[str, ...] = ()


class OfferSource(Protocol):
    """Lists what a cloud sells."""

    def offers(self, resources: Resources) -> OfferList:
        """List what fits the requirements; if data volumes exist already, in their place only.

        Raises:
            BadRequestError: the cloud has no such thing, or the data volumes are in different places.
            NoCapacityError: nothing fits, and the cloud can say why, such as a quota.
        """

    def refresh(self) -> str:
        """Rewrite the snapshot of prices for offline plans, and return its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """A machine type with one price in all its regions.

    Attributes:
        gpu: SkyPilot's name in lower case; empty without GPUs.
        gpu_memory_gib: of one GPU.
        disk_gib: of the included disk.
        regions: where it is available now; empty if it is only listed.
    """

    name: str
    gpu: str
    gpus: int
    gpu_memory_gib: float
    cpus: int
    memory_gib: float
    disk_gib: int
    usd_per_hour: Decimal
    regions: tuple[str, ...]


def refuse_lacking(provider: str, resources: Resources) -> None:
    """Refuse what a cloud lacks that only sells whole machines on demand; nothing is contacted.

    Raises:
        BadRequestError: the job wants spot machines, data volumes, a zone, several machines, or IOPS and throughput of
            its own.
    """
    speed = resources.disk_iops or resources.disk_mibps
    unsupported: dict[str, tuple[object, str]] = {
        "spot machines": (resources.use_spot, "leave --spot out"),
        "data volumes": (resources.volumes, "leave `volumes` out of the job: data is sent, or fetched from a store"),
        "zones": (resources.zone, "use --region, without --zone"),
        "network between the machines of a run": (
            resources.num_nodes > 1,
            "leave `num_nodes` out, or choose aws, do or amd with --provider",
        ),
        "IOPS and throughput apart from disks": (speed, "leave `disk_iops` and `disk_throughput` out"),
    }
    for what, (is_wanted, fix) in unsupported.items():
        if is_wanted:
            raise BadRequestError(f"{provider} has no {what}", why="the job, or a flag, asks for this", fix=fix)


def plan_offers(
    provider: str, types: Sequence[MachineType], resources: Resources, regions: Collection[str], shortest: timedelta
) -> tuple[Offer, ...]:
    """Make an offer for each fitting machine type in each region, the cheapest first.

    Args:
        provider: the provider's name.
        types: all machine types that the cloud lists.
        resources: the job's requirements.
        regions: all regions of the cloud.
        shortest: the shortest time billed.

    Raises:
        BadRequestError: the cloud has no such region, GPU or type.
        NoCapacityError: nothing fits; the error says why the nearest types don't.
    """
    for region in resources.regions:
        if region not in regions:
            raise _unknown(provider, f"region {region!r}", regions, "--region")
    named = [each for each in types if _is_named(each, resources)]
    if not named and (resources.instance_type or resources.accelerators):
        known = {each.gpu or each.name for each in types}
        raise _unknown(provider, _describe(resources), known, "--gpu, or a machine with --instance-type")
    offers = [
        _offer(provider, each, region, shortest)
        for each in named
        for region in each.regions
        if region in (resources.regions or each.regions) and _fits(each, resources)
    ]
    if not offers:
        raise _nothing(provider, named, resources)
    order = resources.regions or sorted({each.region for each in offers})
    return tuple(sorted(offers, key=lambda each: (each.usd_per_hour, order.index(each.region))))


def _is_named(kind: MachineType, resources: Resources) -> bool:
    if resources.instance_type is not None:
        return kind.name == resources.instance_type
    wanted = resources.accelerators
    return not kind.gpus if wanted is None else (kind.gpu, kind.gpus) == (wanted.name.lower(), wanted.count)


def _fits(kind: MachineType, resources: Resources) -> bool:
    is_cheap = resources.max_usd_per_hour is None or kind.usd_per_hour <= resources.max_usd_per_hour
    return is_cheap and kind.disk_gib >= (resources.disk_gib or 0)


def _offer(provider: str, kind: MachineType, region: str, shortest: timedelta) -> Offer:
    return Offer(
        provider=provider,
        region=region,
        zone="",
        instance_type=kind.name,
        accelerators=Accelerators(name=kind.gpu, count=kind.gpus) if kind.gpu else None,
        gpu_memory_gib=kind.gpu_memory_gib,
        cpus=kind.cpus,
        memory_gib=kind.memory_gib,
        disk_gib=kind.disk_gib,
        usd_per_hour=kind.usd_per_hour,
        billed_for_at_least=shortest,
    )


def _describe(resources: Resources) -> str:
    return resources.instance_type or str(resources.accelerators or "machine without a GPU")


def _unknown(provider: str, what: str, known: Collection[str], flag: str) -> BadRequestError:
    return BadRequestError(
        f"{provider} has no {what}", why=f"it has: {', '.join(sorted(known))}", fix=f"choose one of those with {flag}"
    )


def _nothing(provider: str, named: Sequence[MachineType], resources: Resources) -> NoCapacityError:
    there = [
        f"{each.name} costs ${each.usd_per_hour} an hour, has a disk of {each.disk_gib} GiB, "
        f"and is available in {', '.join(each.regions) or 'no region'} now"
        for each in named
    ]
    return NoCapacityError(
        f"{provider} sells no {_describe(resources)} that fits in {', '.join(resources.regions) or 'any region'} now",
        why="; ".join(there) or "it sells only machines with GPUs",
        fix="try again later, allow more regions, a higher --max-price or a smaller disk, or choose another --gpu",
    )
