"""Plans offers from what AWS sells: which fit, in which order, and why none does. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.market import quotas
from orchestrator.adapters.providers.aws.market.catalog import no_such_count
from orchestrator.adapters.providers.aws.market.prices import ADDRESS_USD_PER_HOUR
from orchestrator.adapters.providers.aws.market.reader import ForSale, RegionMarket
from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.offer import Offer
from orchestrator.core.values.disk import plan_disk

if TYPE_CHECKING:
    from orchestrator.core.job import Resources

NAME = "aws"

# A region's own zone, by name or by id. Local zones look different: us-west-2-lax-1a, usw2-lax1-az1.
_OWN_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]|[a-z]+\d-az\d+")


def plan_offers(markets: Sequence[RegionMarket], resources: Resources, *, zone: str | None = None) -> tuple[Offer, ...]:
    """Make an offer for each fitting type in each zone, the cheapest first, disks included.

    Raises:
        NoCapacityError: nothing fits; the error says why the nearest offers don't.
        BadRequestError: no type has the GPUs in this number.
    """
    known = [(sale, market) for market in markets for sale in market.sales if _in_zone(sale.zone, zone)]
    most = resources.max_usd_per_hour
    affordable = [(sale, market) for sale, market in known if most is None or sale.usd_per_hour <= most]
    offers = [_offer(sale, market, resources) for sale, market in affordable if _has_room(sale, market, resources)]
    if not offers:
        raise _nothing(markets, resources, known, affordable)
    order = {market.region: number for number, market in enumerate(markets)}
    return tuple(sorted(offers, key=lambda each: (each.total_usd_per_hour, order[each.region], each.zone)))


def _in_zone(zone: str, wanted: str | None) -> bool:
    """Tell whether the job allows a zone; local zones only if the job names them."""
    return zone == wanted if wanted is not None else _OWN_ZONE.fullmatch(zone) is not None


def _has_room(sale: ForSale, market: RegionMarket, resources: Resources) -> bool:
    headroom = _headroom(sale, market, spot=resources.use_spot)
    return headroom is None or sale.type.cpus * resources.num_nodes <= headroom.free_vcpus


def _headroom(sale: ForSale, market: RegionMarket, *, spot: bool) -> quotas.Headroom | None:
    quota = quotas.quota_of(sale.type.name, spot=spot)
    return market.headroom.get(quota.code) if quota else None


def _offer(sale: ForSale, market: RegionMarket, resources: Resources) -> Offer:
    disk_gib = max(resources.disk_gib or 0, market.root_gib)
    root = plan_disk(disk_gib, iops=resources.disk_iops, mibps=resources.disk_mibps)
    disks = (root, *(volume.disk for volume in resources.volumes))
    address = Decimal(0) if resources.site.is_private else ADDRESS_USD_PER_HOUR
    return Offer(
        provider=NAME,
        region=market.region,
        zone=sale.zone,
        instance_type=sale.type.name,
        accelerators=sale.type.accelerators,
        gpu_memory_gib=sale.type.gpu_memory_gib,
        cpus=sale.type.cpus,
        memory_gib=sale.type.memory_gib,
        disk_gib=disk_gib,
        local_disk_gib=sale.type.local_disk_gib,
        usd_per_hour=sale.usd_per_hour,
        cap_usd_per_hour=_cap(sale, resources),
        disk_usd_per_hour=market.disks.usd_per_hour(disks) + address,
        spot=resources.use_spot,
        live=market.live,
    )


def _cap(sale: ForSale, resources: Resources) -> Decimal:
    """Return the most an hour may cost: a spot price moves, up to the user's limit or the on-demand price."""
    limits = (sale.on_demand_usd_per_hour, resources.max_usd_per_hour)
    known = [limit for limit in limits if limit is not None]
    return min(known) if resources.use_spot and known else Decimal(0)


def _nothing(
    markets: Sequence[RegionMarket],
    resources: Resources,
    known: Sequence[tuple[ForSale, RegionMarket]],
    affordable: Sequence[tuple[ForSale, RegionMarket]],
) -> KedgeError:
    """Say why the nearest offers don't fit: the quota, else the price, else the zone."""
    where = ", ".join(market.region for market in markets)
    if affordable:
        return _quota_error(affordable, resources)
    if known:
        cheapest = min((sale for sale, _ in known), key=lambda sale: sale.usd_per_hour)
        return NoCapacityError(
            f"AWS sells nothing for at most ${resources.max_usd_per_hour} an hour in {where}",
            why=f"the cheapest is {cheapest.type.name} in {cheapest.zone} at ${cheapest.usd_per_hour}",
            fix="raise --max-price, or allow more regions",
        )
    others = [kind for market in markets for kind in market.others]
    if others and resources.accelerators and not any(market.sales for market in markets):
        return no_such_count(resources.accelerators, others)
    zones = sorted({sale.zone for market in markets for sale in market.sales})
    return NoCapacityError(
        f"AWS doesn't sell {_describe(resources)} in {resources.zone or where}",
        why=f"it is sold in {', '.join(zones)}" if zones else "no zone there has such a type at a price",
        fix="choose one of those with --zone" if zones else "allow more regions with --region, or choose another --gpu",
    )


def _quota_error(affordable: Sequence[tuple[ForSale, RegionMarket]], resources: Resources) -> NoCapacityError:
    """Make the error for the quota that lacks the least."""
    count = resources.num_nodes
    short = [
        (sale.type.cpus * count - headroom.free_vcpus, market.region, sale.type.cpus * count, headroom)
        for sale, market in affordable
        if (headroom := _headroom(sale, market, spot=resources.use_spot)) is not None
    ]
    _, region, cpus, headroom = min(short, key=lambda each: each[:3])
    return quotas.no_headroom(headroom, region=region, needed_vcpus=cpus)


def _describe(resources: Resources) -> str:
    machine = resources.instance_type or str(resources.accelerators or "a plain machine")
    return f"{machine} as a spot machine" if resources.use_spot else machine
