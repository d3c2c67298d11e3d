"""The meter: simulated dollars by the second, for all that exists.

Droplets bill from creation to their end, powered off or not (fact: do-off-bills), for at least 60 seconds
(fact: do-plain-minimum), with GPUs for at least five minutes (fact: do-gpu-minimum). Storage and addresses by the hour
of a month of 730 (fact: do-storage-prices).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

from tests.cloudbox.digitalocean.account import Account

_HOURS_PER_MONTH = 730
_VOLUME_USD_PER_GIB_MONTH = Decimal("0.10")
_SNAPSHOT_USD_PER_GB_MONTH = Decimal("0.06")
_RESERVED_IP_USD_PER_MONTH = Decimal(5)
_PLAIN_MINIMUM_SECONDS, _GPU_MINIMUM_SECONDS = 60, 300
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """One thing that bills, at one price; times in Unix seconds, `until` None while it still bills."""

    id: str
    kind: str
    """droplet, volume, snapshot or reserved_ip."""
    region: str
    what: str
    usd_per_hour: Decimal
    since: float
    until: float | None = None
    minimum_seconds: int = 0

    def usd(self, now: float) -> Decimal:
        """Return what it has cost."""
        seconds = max(self.minimum_seconds, (now if self.until is None else self.until) - self.since)
        return self.usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR


class Meter:
    """Reads the account after each change."""

    def __init__(self, account: Account, lock: threading.RLock) -> None:
        self._account = account
        self._lock = lock
        self._closed: list[Bill] = []
        self._open: dict[tuple[str, str], Bill] = {}

    def observe(self) -> None:
        """Start what is new and end what is gone, now."""
        with self._lock:
            now = self._account.clock.now()
            seen = {(bill.id, bill.what): bill for bill in self._billing(now)}
            for key in self._open.keys() - seen.keys():
                self._closed.append(replace(self._open.pop(key), until=now))
            for key in seen.keys() - self._open.keys():
                self._open[key] = seen[key]

    def usd(self) -> Decimal:
        """Return what everything has cost until now, in dollars."""
        return sum((bill.usd(self._account.clock.now()) for bill in self.bills()), Decimal(0))

    def bills(self) -> list[Bill]:
        """Return every bill, those of what is gone first."""
        with self._lock:
            self.observe()
            return [*self._closed, *self._open.values()]

    def billing(self) -> list[Bill]:
        """Return what still bills."""
        with self._lock:
            self.observe()
            return list(self._open.values())

    def reset(self) -> None:
        """Start from nothing."""
        with self._lock:
            self._closed.clear()
            self._open.clear()

    def _billing(self, now: float) -> Iterator[Bill]:
        for droplet in self._account.present():
            yield Bill(
                id=str(droplet.id),
                kind="droplet",
                region=droplet.region,
                what=droplet.size.slug,
                usd_per_hour=droplet.size.usd_per_hour,
                since=droplet.created_at,
                minimum_seconds=_GPU_MINIMUM_SECONDS if droplet.size.gpus else _PLAIN_MINIMUM_SECONDS,
            )
        for name, kind, region, what, usd_per_month in self._by_the_month():
            rate = usd_per_month / _HOURS_PER_MONTH
            yield Bill(id=name, kind=kind, region=region, what=what, usd_per_hour=rate, since=now)

    def _by_the_month(self) -> Iterator[tuple[str, str, str, str, Decimal]]:
        account = self._account
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
