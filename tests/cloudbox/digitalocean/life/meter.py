"""The meter: simulated dollars by the second, for all that exists.

Droplets bill from creation to their end, powered off or not (fact: do-off-bills), for at least 60 seconds
(fact: do-plain-minimum), with GPUs for at least five minutes (fact: do-gpu-minimum). Storage and addresses by the hour
of a month of 730 (fact: do-storage-prices).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.rest.meter import Bill

_HOURS_PER_MONTH = 730
_VOLUME_USD_PER_GIB_MONTH = Decimal("0.10")
_SNAPSHOT_USD_PER_GB_MONTH = Decimal("0.06")
_RESERVED_IP_USD_PER_MONTH = Decimal(5)
_PLAIN_MINIMUM_SECONDS, _GPU_MINIMUM_SECONDS = 60, 300


def list_billing(account: Account, now: float) -> Iterator[Bill]:
    """Return what bills at an instant."""
    for droplet in account.present():
        yield Bill(
            id=str(droplet.id),
            kind="droplet",
            region=droplet.region,
            what=droplet.size.slug,
            usd_per_hour=droplet.size.usd_per_hour,
            since=droplet.created_at,
            minimum_seconds=_GPU_MINIMUM_SECONDS if droplet.size.gpus else _PLAIN_MINIMUM_SECONDS,
        )
    for name, kind, region, what, usd_per_month in _by_the_month(account):
        rate = usd_per_month / _HOURS_PER_MONTH
        yield Bill(id=name, kind=kind, region=region, what=what, usd_per_hour=rate, since=now)


def _by_the_month(account: Account) -> Iterator[tuple[str, str, str, str, Decimal]]:
    for volume in account.volumes.values():
        rate = volume.size_gigabytes * _VOLUME_USD_PER_GIB_MONTH
        yield volume.id, "volume", volume.region, f"{volume.size_gigabytes} GiB", rate
    for snapshot in account.volume_snapshots.values():
        rate = Decimal(snapshot.size_gigabytes) * _SNAPSHOT_USD_PER_GB_MONTH
        yield snapshot.id, "snapshot", snapshot.region, f"{snapshot.size_gigabytes} GB", rate
    for image in account.images.values():
        if image.public is None:
            rate = Decimal(image.size_gigabytes) * _SNAPSHOT_USD_PER_GB_MONTH
            yield str(image.id), "snapshot", image.regions[0], f"{image.size_gigabytes} GB", rate
    for reserved in account.reserved_ips.values():
        if reserved.droplet_id is None:
            yield reserved.ip, "reserved_ip", reserved.region, "not attached", _RESERVED_IP_USD_PER_MONTH
