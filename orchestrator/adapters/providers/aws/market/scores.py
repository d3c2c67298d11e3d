"""Orders spot offers: by price, and by AWS's placement scores, which estimate where a request succeeds.

GetSpotPlacementScores rates zones (by id) from 1 to 10 for a list of types together. AWS limits the number of
different requests of an account in 24 hours, not how often it repeats one. So each job leads to one request, always
written the same way, and its answer is cached for a while
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-placement-score.html, November 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.core.offer import Offer

NEARLY_CHEAPEST = Decimal("1.2")
"""Among offers up to this multiple of the cheapest price, the likelier zone comes first. A refused request costs only
seconds, since the next offer follows; a reclaimed machine costs a boot and the steps since its last checkpoint. That
is worth a fifth of the price at most."""

_KEPT = timedelta(minutes=30)
_MOST_REGIONS = 10
_SHOWN = 4

Scores = Mapping[str, int]
"""Scores by zone id; AWS returns the ten best zones only."""


def ask_scores(ec2: EC2Client, offers: Sequence[Offer], cache: Cache) -> Scores:
    """Request how likely a request for one machine of these types succeeds in each zone.

    Raises:
        ClientError, BotoCoreError: AWS refuses, or doesn't answer.
    """
    types = sorted({offer.instance_type for offer in offers})
    regions = sorted({offer.region for offer in offers})[:_MOST_REGIONS]

    def ask() -> dict[str, int]:
        # fact: aws-placement-scores
        answer = ec2.get_spot_placement_scores(
            InstanceTypes=types, RegionNames=regions, TargetCapacity=1, SingleAvailabilityZone=True
        )
        return {score["AvailabilityZoneId"]: score["Score"] for score in answer["SpotPlacementScores"]}

    kept: dict[str, int] = cache.remember("placement scores", " ".join((*regions, *types)), ask, max_age=_KEPT)
    return kept


def order_by_score(offers: Sequence[Offer], scores: Scores, ids: Mapping[str, str]) -> tuple[Offer, ...]:
    """Put the nearly cheapest offers first, the best scored of them leading; the others follow by price.

    Args:
        offers: the cheapest first.
        scores: by zone id.
        ids: the ids of zones, by name.
    """
    limit = offers[0].total_usd_per_hour * NEARLY_CHEAPEST

    def key(offer: Offer) -> tuple[bool, int]:
        near = offer.total_usd_per_hour <= limit
        return not near, -scores.get(ids.get(offer.zone, offer.zone), 0) if near else 0

    return tuple(sorted(offers, key=key))


def describe_order(offers: Sequence[Offer], scores: Scores, ids: Mapping[str, str]) -> str:
    """Describe the order of spot offers, with the scores of the first zones."""
    zones = list(dict.fromkeys(offer.zone for offer in offers))[:_SHOWN]
    shown = ", ".join(f"{zone} {scores.get(ids.get(zone, zone), '-')}" for zone in zones)
    share = (NEARLY_CHEAPEST - 1) * 100
    return f"spot order: within {share:.0f} % of the cheapest by placement score (of 10: {shown}), then by price"


def describe_failure(err: ClientError | BotoCoreError) -> str:
    """Say why spot offers are ordered by price alone."""
    why = code_of(err) if isinstance(err, ClientError) else type(err).__name__
    return f"spot order: cheapest first (AWS gave no placement scores: {why})"
