"""Spot prices by zone, which tests can set."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase

from werkzeug.wrappers import Response

from tests.cloudbox import moto_state, prices
from tests.cloudbox.answers import ec2_list
from tests.cloudbox.aws_call import Call

_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_EARLIER = timedelta(hours=6)


class SpotMarket:
    """What spot machines cost now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[tuple[str, str], Decimal] = {}

    def usd_per_hour(self, instance_type: str, zone: str) -> Decimal:
        """Return the price in a zone."""
        with self._lock:
            override = self._set.get((instance_type, zone))
        return prices.usual_spot_usd_per_hour(instance_type, zone) if override is None else override

    def set(self, instance_type: str, zone: str, usd_per_hour: Decimal) -> None:
        """Change the price in a zone; machines that run keep the price of their launch."""
        with self._lock:
            self._set[instance_type, zone] = usd_per_hour

    def reset(self) -> None:
        """Go back to the usual prices."""
        with self._lock:
            self._set.clear()

    def describe_history(self, call: Call) -> Response:
        """Answer DescribeSpotPriceHistory: the present price, and where `StartTime` allows an earlier, higher one."""
        now = datetime.now(UTC)
        started = str(call.params.get("StartTime", ""))
        rows = [
            {
                "instanceType": instance_type,
                "productDescription": _product(call),
                "spotPrice": f"{price:.6f}",
                "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "availabilityZone": zone,
            }
            for instance_type, zone in _asked_for(call)
            for moment, price in self._history(instance_type, zone, now)
            if moment == now or not started or moment.isoformat() >= started
        ]
        return ec2_list("DescribeSpotPriceHistory", "spotPriceHistorySet", rows)

    def _history(self, instance_type: str, zone: str, now: datetime) -> list[tuple[datetime, Decimal]]:
        price = self.usd_per_hour(instance_type, zone)
        return [(now, price), (now - _EARLIER, price * Decimal("1.05"))]


def _product(call: Call) -> str:
    wanted = call.listed("ProductDescription") or call.filters().get("product-description", [])
    return next((product for product in wanted if product in _PRODUCTS), _PRODUCTS[0])


def _asked_for(call: Call) -> list[tuple[str, str]]:
    filters = call.filters()
    types = call.listed("InstanceType") or filters.get("instance-type", ["*"])
    zones = filters.get("availability-zone", [])
    if single := call.params.get("AvailabilityZone"):
        zones = [single]
    return [
        (instance_type, zone)
        for instance_type in prices.listed_types()
        if any(fnmatchcase(instance_type, pattern) for pattern in types)
        for zone in moto_state.zones_of(instance_type, call.region)
        if not zones or zone in zones
    ]
