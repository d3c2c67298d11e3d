"""Reads what a region sells now for a job: types, zones, prices, images and quotas."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.access import zones
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.adapters.providers.aws.market import catalog, prices, quotas
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.adapters.providers.aws.market.images import find_image
from orchestrator.adapters.providers.aws.own_network import OwnNetwork, find_own_network, require_default_network
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.core.job import Resources
    from orchestrator.core.ports import Clock
    from orchestrator.core.values.site import Site

_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ForSale:
    """One type in one zone, at its price in the job's market (spot or on demand).

    Attributes:
        on_demand_usd_per_hour: its on-demand price there; None if it isn't sold on demand.
    """

    type: InstanceType
    zone: str
    usd_per_hour: Decimal
    on_demand_usd_per_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionMarket:
    """What one region sells.

    Attributes:
        others: candidate types of the region that don't have the required GPUs.
        root_gib: the smallest root disk that the image allows.
        headroom: the known quotas that these types count against, by code.
        live: False if it is from a dated snapshot.
    """

    region: str
    sales: tuple[ForSale, ...] = ()
    others: tuple[InstanceType, ...] = ()
    disks: prices.DiskPrices = field(default_factory=prices.DiskPrices)
    root_gib: int = 0
    headroom: dict[str, quotas.Headroom] = field(default_factory=dict)
    live: bool = True


class RegionReader:
    """Reads one region; what rarely changes is cached for a day."""

    def __init__(self, session: AwsSession, region: str, cache: Cache, clock: Clock) -> None:
        """Make all clients here: boto3's clients are thread-safe, but making them isn't."""
        self.region = region
        self._session = session
        self._cache = cache
        self._clock = clock
        self._ec2 = session.client("ec2", region)
        self.ec2_once = session.client("ec2", region, single_shot=True)
        self._quotas = session.client("service-quotas", region)
        self._pricing = session.client("pricing", prices.pricing_region(region))
        session.client("ssm", region)

    def read(self, resources: Resources) -> RegionMarket:
        """Request everything that offers are made of, in parallel."""
        known = self.types(catalog.wanted_patterns(resources))
        types = catalog.choose_types(known, resources)
        if not types:
            return RegionMarket(region=self.region, others=known)
        with ThreadPoolExecutor(_THREADS) as pool:
            root = pool.submit(self._root_gib, resources, types[0])
            disks = pool.submit(self.disk_prices)
            headroom = pool.submit(self._headroom, types, spot=resources.use_spot)
            own = pool.submit(self._own_network, resources.site)
            sold = self.spot(types, pool) if resources.use_spot else self.on_demand(types, pool)
            sales = _in_subnets(sold, own.result(), resources.site, self.region)
            return RegionMarket(
                region=self.region,
                sales=sales,
                disks=disks.result(),
                root_gib=root.result(),
                headroom=headroom.result(),
            )

    def types(self, patterns: Sequence[str]) -> tuple[InstanceType, ...]:
        """Return the region's x86_64 types with these names."""

        def ask() -> list[dict[str, object]]:
            pages = self._ec2.get_paginator("describe_instance_types").paginate(
                Filters=[
                    {"Name": "instance-type", "Values": list(patterns)},
                    {"Name": "processor-info.supported-architecture", "Values": ["x86_64"]},
                ]
            )
            return [asdict(catalog.parse_type(info)) for page in pages for info in page["InstanceTypes"]]

        # The fields, too: an earlier kedge may have cached fewer.
        asked = " ".join((self.region, *patterns, *(each.name for each in fields(InstanceType))))
        kept = self._cache.remember("types", asked, ask)
        return tuple(InstanceType(**each) for each in kept)

    def zones(self, types: Sequence[InstanceType]) -> dict[str, list[str]]:
        """Return the zones that offer each type."""
        names = sorted(kind.name for kind in types)

        def ask() -> dict[str, list[str]]:
            pages = self._ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": names}]
            )
            found: dict[str, list[str]] = {name: [] for name in names}
            for offering in (each for page in pages for each in page["InstanceTypeOfferings"]):
                found[offering["InstanceType"]].append(offering["Location"])
            return found

        kept: dict[str, list[str]] = self._cache.remember("zones", f"{self.region} {' '.join(names)}", ask)
        return kept

    def zone_ids(self) -> dict[str, str]:
        """Return the ids of the region's zones by their names in this account."""
        kept: dict[str, str] = self._cache.remember("zone ids", self.region, lambda: zones.ask_zone_ids(self._ec2))
        return kept

    def zone_name(self, zone_id: str) -> str:
        """Return the name of a zone in this account.

        Raises:
            BadRequestError: the region has no such zone.
        """
        return zones.name_of(zone_id, self.zone_ids(), self.region)

    def on_demand(self, types: Sequence[InstanceType], pool: ThreadPoolExecutor) -> tuple[ForSale, ...]:
        """Return what is for sale on demand, for every zone that offers it."""
        where = pool.submit(self.zones, types)
        costs = list(pool.map(self.usd_per_hour, types))
        return tuple(
            ForSale(type=kind, zone=zone, usd_per_hour=cost, on_demand_usd_per_hour=cost)
            for kind, cost in zip(types, costs, strict=True)
            if cost is not None
            for zone in where.result()[kind.name]
        )

    def spot(self, types: Sequence[InstanceType], pool: ThreadPoolExecutor) -> tuple[ForSale, ...]:
        """Return what is for sale on the spot market; never cached, since spot prices move.

        On-demand prices are requested too: no spot price rises above them.
        """
        by_name = {kind.name: kind for kind in types}
        limits = {kind.name: pool.submit(self.usd_per_hour, kind) for kind in types}
        found = prices.ask_spot_prices(self._ec2, list(by_name), self._clock.now())
        return tuple(
            ForSale(type=by_name[name], zone=zone, usd_per_hour=cost, on_demand_usd_per_hour=limits[name].result())
            for (zone, name), cost in found.items()
        )

    def usd_per_hour(self, kind: InstanceType) -> Decimal | None:
        """Return a type's on-demand price; None if it isn't sold on demand."""

        def ask() -> str | None:
            price = prices.ask_machine_price(self._pricing, self.region, kind.name)
            return None if price is None else str(price)

        kept = self._cache.remember("prices", f"{self.region} {kind.name}", ask)
        return None if kept is None else Decimal(kept)

    def disk_prices(self) -> prices.DiskPrices:
        """Return the prices of gp3 disks.

        Raises:
            KedgeError: the price list has none.
        """

        def ask() -> dict[str, str] | None:
            found = prices.ask_disk_prices(self._pricing, self.region)
            return None if found is None else {name: str(usd) for name, usd in asdict(found).items()}

        kept = self._cache.remember("prices", f"{self.region} disks", ask)
        if kept is None:
            raise KedgeError(
                f"AWS's price list has no gp3 disk for {self.region}",
                why="without the price of disks the worst case can't be computed",
                fix="try again later, or choose another --region",
            )
        return prices.DiskPrices(**{name: Decimal(usd) for name, usd in kept.items()})

    def _own_network(self, site: Site) -> OwnNetwork | None:
        """Look up the user's own network; if none is named, check that there is a default VPC."""
        own = find_own_network(self._ec2, site)
        if own is None:
            require_default_network(self._ec2)
        return own

    def _root_gib(self, resources: Resources, kind: InstanceType) -> int:
        image = find_image(resources, self._session, self.region, kind.accelerators, cache=self._cache)
        return image.min_disk_gib

    def _headroom(self, types: Sequence[InstanceType], *, spot: bool) -> dict[str, quotas.Headroom]:
        wanted = {quota for kind in types if (quota := quotas.quota_of(kind.name, spot=spot))}
        limits = {quota: limit for quota in wanted if (limit := self._limit(quota)) is not None}
        if not limits:
            return {}
        running = quotas.ask_running(self._ec2)
        cpus = self._cpus(types, sorted({name for name, _ in running}))
        return {
            quota.code: quotas.Headroom(
                quota=quota, limit_vcpus=int(limit), used_vcpus=quotas.count_vcpus(running, cpus, quota)
            )
            for quota, limit in limits.items()
        }

    def _limit(self, quota: quotas.Quota) -> float | None:
        limit: float | None = self._cache.remember(
            "quotas", f"{self.region} {quota.code}", lambda: quotas.ask_limit(self._quotas, quota)
        )
        return limit

    def _cpus(self, types: Sequence[InstanceType], running: Sequence[str]) -> dict[str, int]:
        known = {kind.name: kind.cpus for kind in types}
        missing = [name for name in running if name not in known]
        more = self.types(missing) if missing else ()
        return known | {kind.name: kind.cpus for kind in more}


def _in_subnets(sold: tuple[ForSale, ...], own: OwnNetwork | None, site: Site, region: str) -> tuple[ForSale, ...]:
    """Keep what is for sale in the zones of the user's own subnets."""
    if own is None or not sold:
        return sold
    kept = tuple(sale for sale in sold if sale.zone in own.subnets)
    if not kept:
        zones = ", ".join(sorted({sale.zone for sale in sold}))
        raise NotInRegionError(
            f"{site.where('subnet')}{own.vpc_id} has no subnet in {region} where this is sold",
            why=f"it is sold in {zones}",
            fix="name a subnet in one of these zones, or choose other types",
        )
    return kept
