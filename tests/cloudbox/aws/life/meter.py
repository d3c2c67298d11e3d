"""The meter: simulated dollars by the second, for all that exists."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.instances import Instance

from tests.cloudbox.aws.rules import prices, restoring
from tests.cloudbox.aws.rules.spot import SpotMarket
from tests.cloudbox.aws.wire import moto_state

_SECONDS_PER_HOUR = 3600


@dataclass(slots=True, kw_only=True)
class Entry:
    """One thing that bills, at one price beside what it cost once.

    Times are in Unix seconds; `until` is None while it still bills.
    """

    id: str
    kind: str
    region: str
    what: str
    usd_per_hour: Decimal
    since: float
    until: float | None = None
    once_usd: Decimal = Decimal(0)

    def usd(self, now: float) -> Decimal:
        """Return what it has cost."""
        seconds = (now if self.until is None else self.until) - self.since
        return self.usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR + self.once_usd

    def describe(self, now: float) -> dict[str, Any]:
        """Return the entry as JSON can have it; money as text."""
        return {
            "id": self.id,
            "kind": self.kind,
            "region": self.region,
            "what": self.what,
            "usd_per_hour": str(self.usd_per_hour),
            "since": self.since,
            "until": self.until,
            "usd": f"{self.usd(now):.9f}",
        }


class Meter:
    """Reads the cloud after each change. AWS's minimum of 60 seconds a machine is left out: tests live shorter."""

    def __init__(self, spot: SpotMarket) -> None:
        self._spot = spot
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._open: dict[tuple[str, str], Entry] = {}

    def observe(self) -> None:
        """Start what is new and end what is gone, now."""
        now = time.time()
        with self._lock:
            seen = dict(self._billing())
            for key in self._open.keys() - seen.keys():
                self._open.pop(key).until = now
            for key in seen.keys() - self._open.keys():
                self._open[key] = seen[key](now)
                self._entries.append(self._open[key])

    def report(self) -> dict[str, Any]:
        """Return all entries and their sum."""
        now = time.time()
        with self._lock:
            total = sum((entry.usd(now) for entry in self._entries), Decimal(0))
            return {"entries": [entry.describe(now) for entry in self._entries], "usd": f"{total:.9f}"}

    def billing(self) -> list[dict[str, Any]]:
        """Return what still bills."""
        now = time.time()
        with self._lock:
            return [entry.describe(now) for entry in self._open.values()]

    def reset(self) -> None:
        """Start from nothing."""
        with self._lock:
            self._entries.clear()
            self._open.clear()

    def _billing(self) -> Iterator[tuple[tuple[str, str], Callable[[float], Entry]]]:
        for region, backend in moto_state.regions():
            for instance in backend.all_instances():
                if instance.state in moto_state.RUNNING:
                    yield (instance.id, ""), _entry_of(self._instance, region, instance)
                    if instance.public_ip:
                        yield (instance.id, "address"), _entry_of(_address, region, instance)
            for volume in list(backend.volumes.values()):
                speed = f"{volume.iops} {volume.throughput}"
                yield (volume.id, f"{volume.size} {volume.volume_type} {speed}"), _entry_of(_volume, region, volume)

    def _instance(self, region: str, instance: Instance, now: float) -> Entry:
        zone, market = str(instance.availability_zone), moto_state.market(instance)
        if market == "spot":
            rate = self._spot.usd_per_hour(instance.instance_type, zone)
        else:
            rate = prices.usd_per_hour(instance.instance_type, region)
        what = f"{instance.instance_type} {market} {zone}"
        return Entry(id=instance.id, kind="instance", region=region, what=what, usd_per_hour=rate, since=now)


def _address(region: str, instance: Instance, now: float) -> Entry:
    rate, what = prices.ADDRESS_USD_PER_HOUR, f"public address of {instance.id}"
    return Entry(id=str(instance.public_ip), kind="address", region=region, what=what, usd_per_hour=rate, since=now)


def _volume(region: str, volume: Volume, now: float) -> Entry:
    # fact: gp3-baseline
    speed = {"iops": int(volume.iops or 0), "mibps": int(volume.throughput or 0)}
    rate = prices.volume_usd_per_hour(volume.volume_type, int(volume.size), **speed)
    what, once = f"{volume.volume_type} {volume.size} GB", restoring.charged_usd(volume)
    return Entry(id=volume.id, kind="volume", region=region, what=what, usd_per_hour=rate, since=now, once_usd=once)


def _entry_of(make: Callable[[str, Any, float], Entry], region: str, thing: Any) -> Callable[[float], Entry]:
    return lambda now: make(region, thing, now)
