"""Plans offers from a catalog: which sizes fit, in which order, and why none does. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.market.sizes import SPOT, Size, billed_for_at_least, choose_plain
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.offer import Offer

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.market.catalog import Catalog
    from orchestrator.core.job import Resources

USD_PER_GIB_HOUR = Decimal("0.00015")
"""A volume's price: $10 a month for 100 GiB (digitalocean.com/pricing/volumes, 2026), hourly up to 672 hours."""


def plan_offers(catalog: Catalog, resources: Resources, provider: str, elsewhere: str = "") -> tuple[Offer, ...]:
    """Make an offer for each fitting size in each region, the cheapest first.

    Args:
        catalog: everything that the API shows the account.
        resources: the job's requirements.
        provider: the provider's name.
        elsewhere: an error's advice to use another provider that sells this; empty for none.

    Raises:
        BadRequestError: this provider has no such thing.
        NoCapacityError: nothing fits; the error says why the nearest sizes don't.
    """
    _refuse_unknown(catalog, resources, provider, elsewhere)
    sizes = catalog.sizes
    named = _named(sizes, resources)
    wanted = [size for size in named if _fits(size, resources)]
    sold_in = catalog.volume_regions if resources.volumes else catalog.regions
    places = resources.regions or tuple(sorted(catalog.regions))
    limits = {size.slug: size.usd_per_hour for size in sizes}
    offers = [
        replace(_offer(size, region, resources, provider, limits), live=catalog.is_live)
        for size in wanted
        for region in places
        if region in size.regions and region in catalog.regions and region in sold_in
    ]
    if not offers:
        raise _nothing(catalog, named, wanted, resources, provider, elsewhere)
    return tuple(sorted(offers, key=lambda each: (each.total_usd_per_hour, places.index(each.region))))


def _refuse_unknown(catalog: Catalog, resources: Resources, provider: str, elsewhere: str) -> None:
    if resources.zone:
        raise BadRequestError(
            f"{provider} has no zone {resources.zone!r}", why="it has regions only", fix="use --region, without --zone"
        )
    known = {*catalog.regions, *(region for size in catalog.sizes for region in size.regions)}
    for region in resources.regions:
        if region not in known:
            raise BadRequestError(
                f"{provider} has no region {region!r}" + _near(region, known),
                why=f"it has: {', '.join(sorted(known))}",
                fix="choose one of those with --region",
            )
    _refuse_speed(resources, provider)
    _refuse_snapshots(resources, provider)
    gpus = {size.gpu for size in catalog.sizes if size.gpus}
    gpu = resources.accelerators
    if gpu is not None and gpu.name.lower() not in gpus:
        raise BadRequestError(
            f"{provider} has no GPU {gpu.name!r}" + _near(gpu.name.lower(), gpus),
            why=f"it has: {', '.join(sorted(gpus))}",
            fix=elsewhere or "choose one of those with --gpu, or name a machine with --instance-type",
        )


def _refuse_speed(resources: Resources, provider: str) -> None:
    fast = [volume.name for volume in resources.volumes if volume.iops or volume.mibps]
    if fast or resources.disk_iops or resources.disk_mibps:
        raise BadRequestError(
            f"{provider} sells no IOPS and no throughput apart from disks",
            why=f"the job asks for them{f' for {fast[0]}' if fast else ' for the root disk'}",
            fix="leave `iops`, `throughput`, `disk_iops` and `disk_throughput` out, or choose AWS with --provider aws",
        )


def _refuse_snapshots(resources: Resources, provider: str) -> None:
    restored = next((volume for volume in resources.volumes if volume.snapshot_id), None)
    if restored is not None:
        raise BadRequestError(
            f"{provider} has no snapshot {restored.snapshot_id}",
            why=f"the volume {restored.name} is to be filled from a snapshot of Amazon EBS",
            fix="leave `snapshot` and `initialization_rate` out, or choose AWS with --provider aws",
        )


def _near(word: str, known: set[str]) -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _named(sizes: Sequence[Size], resources: Resources) -> tuple[Size, ...]:
    """Return the sizes that match by name or GPU, whether they are available or not."""
    if resources.instance_type is not None:
        return tuple(size for size in sizes if size.slug == resources.instance_type)
    gpus = resources.accelerators
    if gpus is None:
        return choose_plain(size for size in sizes if size.regions)
    return tuple(size for size in sizes if (size.gpu, size.gpus) == (gpus.name.lower(), gpus.count))


def _fits(size: Size, resources: Resources) -> bool:
    is_cheap = resources.max_usd_per_hour is None or size.usd_per_hour <= resources.max_usd_per_hour
    is_market = size.is_spot == resources.use_spot or size.slug == resources.instance_type
    return is_cheap and is_market and size.disk_gib >= (resources.disk_gib or 0)


def _offer(size: Size, region: str, resources: Resources, provider: str, limits: dict[str, Decimal]) -> Offer:
    volumes_gib = sum(volume.size_gib for volume in resources.volumes)
    return Offer(
        provider=provider,
        region=region,
        zone="",
        instance_type=size.slug,
        accelerators=size.accelerators,
        gpu_memory_gib=size.gpu_memory_gib,
        cpus=size.cpus,
        memory_gib=size.memory_gib,
        disk_gib=size.disk_gib,
        local_disk_gib=size.scratch_gib,
        usd_per_hour=size.usd_per_hour,
        # A spot price may move, up to the on-demand price if there is one.
        cap_usd_per_hour=limits.get(size.slug.removesuffix(SPOT), Decimal(0)) if size.is_spot else Decimal(0),
        disk_usd_per_hour=volumes_gib * USD_PER_GIB_HOUR,
        spot=size.is_spot,
        billed_for_at_least=billed_for_at_least(size.gpus),
    )


def _nothing(
    catalog: Catalog,
    named: Sequence[Size],
    wanted: Sequence[Size],
    resources: Resources,
    provider: str,
    elsewhere: str,
) -> KedgeError:
    machine = resources.instance_type or str(resources.accelerators or "a plain machine")
    if not named:
        return BadRequestError(
            f"{provider} has no {machine}",
            why="the account is shown no size of this name, or none with GPUs in this number",
            fix=elsewhere or "see `kedge offers`; some sizes are shown only to accounts of a higher tier",
        )
    if not wanted:
        return NoCapacityError(
            f"{provider} sells no {machine} that fits",
            why="; ".join(_describe(size) for size in named),
            fix=elsewhere or "raise --max-price, ask for less disk, or leave out --spot or add it",
        )
    offered = sorted({region for size in wanted for region in size.regions})
    if offered and resources.volumes and not set(offered) & set(catalog.volume_regions):
        return NoCapacityError(
            f"{provider} has no data volumes where it offers {machine}",
            why=f"it is offered in {', '.join(offered)}; volumes are in {', '.join(sorted(catalog.volume_regions))}",
            fix="leave `volumes` out of the job, or choose another --gpu",
        )
    where = ", ".join(resources.regions) or "any region"
    return NoCapacityError(
        f"{provider} doesn't offer {machine} in {where}",
        why=f"it is offered in {', '.join(offered)}" if offered else "it is listed, and offered nowhere now",
        fix="choose one of those with --region" if offered else elsewhere or "try again later, or choose another --gpu",
    )


def _describe(size: Size) -> str:
    market = "a spot machine" if size.is_spot else "on demand"
    return f"{size.slug} costs ${size.usd_per_hour} an hour {market} and has a disk of {size.disk_gib} GiB"
