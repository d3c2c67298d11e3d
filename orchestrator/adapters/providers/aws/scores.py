"""In which order spot offers are tried: by price, and by AWS's own estimate of where a request succeeds.

GetSpotPlacementScores rates zones from 1 to 10 for a list of types together, by zone ids. AWS limits how many different
questions an account may ask in 24 hours, not how often it asks one of them: so there is one question for a wish, always
written the same way, and its answer is kept for a while
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
"""Within this of the cheapest price the likelier zone goes first. A score is a probability and no price: a refused
request costs seconds, since the next offer follows; a machine that is taken away costs a boot and the steps since its
last checkpoint. That is worth a fifth of the price at most, and below it nothing would be gained by a finer rule."""

_KEPT = timedelta(minutes=30)
_MOST_REGIONS = 10
_SHOWN = 4

Scores = Mapping[str, int]
"""By zone id; AWS names the ten best zones only."""


def ask_scores(ec2: EC2Client, offers: Sequence[Offer], cache: Cache) -> Scores:
    """Ask how likely one machine of these types is to be had in each zone.

    Raises:
        ClientError, BotoCoreError: AWS doesn't tell.
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
    """Put the best scored of the nearly cheapest offers first; all others follow by price.

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
    """Say by what spot offers are ordered, with the scores of the zones that come first."""
    zones = list(dict.fromkeys(offer.zone for offer in offers))[:_SHOWN]
    shown = ", ".join(f"{zone} {scores.get(ids.get(zone, zone), '-')}" for zone in zones)
    share = (NEARLY_CHEAPEST - 1) * 100
    return f"spot order: within {share:.0f} % of the cheapest by placement score (of 10: {shown}), then by price"


def describe_failure(err: ClientError | BotoCoreError) -> str:
    """Say why spot offers are in the order of price alone."""
    why = code_of(err) if isinstance(err, ClientError) else type(err).__name__
    return f"spot order: cheapest first (AWS gave no placement scores: {why})"
