"""Takes a new snapshot of AWS's prices from the live APIs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.zones import ask_zone_ids
from orchestrator.adapters.providers.aws.cache import Cache
from orchestrator.adapters.providers.aws.market.catalog import ALL_PATTERNS
from orchestrator.adapters.providers.aws.market.prices import DiskPrices
from orchestrator.adapters.providers.aws.market.reader import RegionReader
from orchestrator.adapters.providers.aws.market.snapshot import (
    Price,
    Snapshot,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.market.catalog import InstanceType
    from orchestrator.core.ports import Clock

# The Pricing API allows about ten calls a second.
_THREADS = 4


def refresh_snapshot(
    session: AwsSession, clock: Clock, *, path: Path | None = None, regions: Sequence[str] = ()
) -> dict[str, object]:
    """Rewrite the snapshot from the live APIs; takes about a minute.

    Args:
        session: the account's session.
        clock: for the snapshot's date.
        path: the file; defaults to the one installed with kedge.
        regions: defaults to those of the present file.

    Returns:
        What was written: path, basis, regions, types, prices.

    Raises:
        KedgeError: AWS can't be queried; the file stays as it was.
    """
    target = path or snapshot_path()
    wanted = tuple(regions) or read_snapshot(target).regions
    try:
        snapshot = _take(session, clock, wanted)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the snapshot of AWS's prices can't be taken") from err
    write_snapshot(target, snapshot)
    return {
        "path": str(target),
        "basis": snapshot.basis,
        "regions": list(snapshot.regions),
        "types": len(snapshot.types),
        "prices": len(snapshot.prices),
    }


def _take(session: AwsSession, clock: Clock, regions: Sequence[str]) -> Snapshot:
    now = clock.now()
    types: dict[str, InstanceType] = {}
    prices: list[Price] = []
    disks: dict[str, DiskPrices] = {}
    with tempfile.TemporaryDirectory(prefix="kedge-") as nothing_kept:
        for region in regions:
            reader = RegionReader(session, region, Cache(Path(nothing_kept), clock), clock)
            found = reader.types(ALL_PATTERNS)
            types |= {kind.name: kind for kind in found}
            disks[region] = reader.disk_prices()
            prices += _prices(reader, found, ask_zone_ids(session.client("ec2", region)))
    sold = {price.type for price in prices}
    return Snapshot(
        basis=_basis(now),
        source={"name": "the APIs of AWS, by `invoke offers --refresh`", "read": now.isoformat(timespec="seconds")},
        types=tuple(sorted((kind for name, kind in types.items() if name in sold), key=lambda kind: kind.name)),
        prices=tuple(prices),
        disks=disks,
    )


def _prices(reader: RegionReader, types: Sequence[InstanceType], zone_ids: dict[str, str]) -> list[Price]:
    """Return the price of each type that the region sells, without local zones."""
    with ThreadPoolExecutor(_THREADS) as pool:
        costs = dict(zip((kind.name for kind in types), pool.map(reader.usd_per_hour, types), strict=True))
        spot = {(sale.type.name, sale.zone): sale.usd_per_hour for sale in reader.spot(types, pool)}
    return [
        Price(
            type=name,
            region=reader.region,
            usd_per_hour=cost,
            spot={zone_ids[zone]: spot.get((name, zone)) for zone in sorted(zones) if zone in zone_ids},
        )
        for name, zones in sorted(reader.zones(types).items())
        if (cost := costs[name]) is not None
    ]


def _basis(now: datetime) -> str:
    return f"a snapshot of {now:%Y-%m-%d}"
