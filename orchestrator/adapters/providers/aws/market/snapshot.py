"""A dated snapshot of AWS's prices, for planning when AWS can't be reached.

It is installed with kedge as `infra/aws/offers.json`; `invoke offers --refresh` takes a new one. Zones are named by
their ids (`use1-az1`): a name such as `us-east-1a` means another zone in each account.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.aws.market.catalog import InstanceType, choose_types, wanted_patterns
from orchestrator.adapters.providers.aws.market.prices import DiskPrices
from orchestrator.adapters.providers.aws.market.reader import ForSale, RegionMarket
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources

_ASSUMED_ROOT_GIB = 75
"""The image's size isn't known offline; the deep learning images of 2026 need less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The prices of one type in one region.

    Attributes:
        spot: dollars an hour by zone id; None if spot machines had no price.
    """

    type: str
    region: str
    usd_per_hour: Decimal
    spot: Mapping[str, Decimal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Prices of one day.

    Attributes:
        basis: the source and date of the prices, as the plan shows them.
        source: the same in detail.
    """

    basis: str
    source: Mapping[str, str]
    types: tuple[InstanceType, ...]
    prices: tuple[Price, ...]
    disks: Mapping[str, DiskPrices]

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions with prices."""
        return tuple(dict.fromkeys(price.region for price in self.prices))

    def markets(self, resources: Resources, regions: Sequence[str], zone: str | None) -> tuple[RegionMarket, ...]:
        """Return what it has for a job in some regions.

        Raises:
            BadRequestError: it has no prices for any of these regions.
        """
        if not set(regions) & set(self.regions):
            raise BadRequestError(
                f"the prices known offline don't cover {', '.join(regions)}",
                why=f"AWS could not be queried, and they are of other regions: {self.basis}",
                fix=f"sign in to AWS, or plan with --region {self.regions[0]}",
            )
        patterns = wanted_patterns(resources)
        named = tuple(kind for kind in self.types if any(fnmatchcase(kind.name, pattern) for pattern in patterns))
        types = {kind.name: kind for kind in choose_types(named, resources)}
        if not types:
            return tuple(RegionMarket(region=region, others=named) for region in regions)
        return tuple(self._market(region, types, zone, spot=resources.use_spot) for region in regions)

    def _market(self, region: str, types: Mapping[str, InstanceType], zone: str | None, *, spot: bool) -> RegionMarket:
        here = [price for price in self.prices if price.region == region and price.type in types]
        return RegionMarket(
            region=region,
            sales=tuple(sale for price in here for sale in _sales(price, types[price.type], zone, spot=spot)),
            disks=self.disks.get(region, max(self.disks.values(), key=lambda prices: prices.gib)),
            root_gib=_ASSUMED_ROOT_GIB,
            live=False,
        )


def snapshot_path() -> Path:
    """Return the file that is installed with kedge."""
    return resource("infra", "aws", "offers.json")


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot.

    Raises:
        KedgeError: the file is missing or damaged.
    """
    try:
        return _parse(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as err:
        raise KedgeError(
            "the snapshot of AWS's prices can't be read",
            why=f"{path}: {err}",
            fix="take a new one with `invoke offers --refresh`, or install kedge again",
        ) from err


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace a snapshot, with one line for each type and each price, so that diffs are readable."""
    types = {kind.name: {key: value for key, value in asdict(kind).items() if key != "name"} for kind in snapshot.types}
    rows = [
        {
            "type": price.type,
            "region": price.region,
            "usd_per_hour": str(price.usd_per_hour),
            "spot": {zone: None if usd is None else str(usd) for zone, usd in price.spot.items()},
        }
        for price in snapshot.prices
    ]
    disks = {
        region: {name: str(usd) for name, usd in asdict(prices).items()} for region, prices in snapshot.disks.items()
    }
    text = "\n".join(
        (
            "{",
            f'  "basis": {json.dumps(snapshot.basis)},',
            f'  "source": {json.dumps(dict(snapshot.source))},',
            f'  "gp3_usd_per_month": {json.dumps(disks)},',
            '  "types": {',
            ",\n".join(f"    {json.dumps(name)}: {json.dumps(facts)}" for name, facts in types.items()),
            "  },",
            '  "prices": [',
            ",\n".join(f"    {json.dumps(row)}" for row in rows),
            "  ]",
            "}\n",
        )
    )
    write_atomically(path, text.encode(), mode=0o644)


def _sales(price: Price, kind: InstanceType, zone: str | None, *, spot: bool) -> list[ForSale]:
    costs = price.spot if spot else dict.fromkeys(price.spot, price.usd_per_hour)
    known = {zone_id: usd for zone_id, usd in costs.items() if usd is not None}
    if known and zone is not None and zone not in known:
        # Only the account knows which zone a name means: the highest price keeps the worst case true.
        known = {zone: max(known.values())}
    most = price.usd_per_hour
    return [
        ForSale(type=kind, zone=zone_id, usd_per_hour=usd, on_demand_usd_per_hour=most)
        for zone_id, usd in known.items()
    ]


def _parse(document: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        basis=document["basis"],
        source=document["source"],
        types=tuple(InstanceType(name=name, **facts) for name, facts in document["types"].items()),
        prices=tuple(
            Price(
                type=row["type"],
                region=row["region"],
                usd_per_hour=Decimal(row["usd_per_hour"]),
                spot={zone: None if usd is None else Decimal(usd) for zone, usd in row["spot"].items()},
            )
            for row in document["prices"]
        ),
        disks={
            region: DiskPrices(**{name: Decimal(usd) for name, usd in row.items()})
            for region, row in document["gp3_usd_per_month"].items()
        },
    )
