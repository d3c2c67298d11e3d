"""Spot prices by zone, which tests can set."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase

from werkzeug.wrappers import Response

from tests.cloudbox.aws.rules import prices
from tests.cloudbox.aws.wire import moto_state, zone_ids
from tests.cloudbox.aws.wire.answers import AwsError, ec2_list
from tests.cloudbox.aws.wire.call import Call

_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_EARLIER = timedelta(hours=6)
_MOST_REGIONS = 10
_FEW_TYPES = 3
_LOW_SCORE = 3
_LISTED = 10


class SpotMarket:
    """What spot machines cost now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[tuple[str, str], Decimal] = {}
        self._scores: dict[str, int] = {}

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
            self._scores.clear()

    def set_score(self, zone: str, score: int) -> None:
        """Set a zone's placement score."""
        with self._lock:
            self._scores[zone] = score

    def score_zones(self, call: Call) -> Response:
        """Answer GetSpotPlacementScores for single zones: the ten best, by id; few types score low, as at AWS.

        fact: aws-placement-scores

        Raises:
            AwsError: a member is missing, or there are too many regions.
        """
        types, regions = call.listed("InstanceType"), call.listed("RegionName") or [call.region]
        if not call.params.get("TargetCapacity"):
            raise AwsError("MissingParameter", "The request must contain the parameter TargetCapacity")
        if call.params.get("SingleAvailabilityZone") != "true" or not types or len(regions) > _MOST_REGIONS:
            raise AwsError("InvalidParameterValue", "The box scores single zones of at most ten regions, by types")
        most = 10 if len(types) >= _FEW_TYPES else _LOW_SCORE
        with self._lock:
            scores = dict(self._scores)
        scored = [
            (min(most, scores.get(zone, _LOW_SCORE)), region, zone_id)
            for region in regions
            for zone, zone_id in zone_ids.zones(region).items()
        ]
        rows = [
            {"region": region, "availabilityZoneId": zone_id, "score": str(score)}
            for score, region, zone_id in sorted(scored, key=lambda each: -each[0])[:_LISTED]
        ]
        return ec2_list("GetSpotPlacementScores", "spotPlacementScoreSet", rows)

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
