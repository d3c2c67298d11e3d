"""Spot offers at nearly equal prices are ordered by the placement scores of their zones."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.core.errors import KedgeError
from tests.adapters.aws.market.asking import A10G, Ask, SetClock
from tests.cloudbox.aws.box import Box


def test_among_nearly_equal_spot_prices_the_best_placement_score_comes_first(ask: Ask, api: Box) -> None:
    """Offers within 20 % of the cheapest are ordered by placement score, the others by price. A note says so.

    fact: aws-placement-scores
    """
    for zone, price in {"a": "0.300", "b": "0.310", "c": "0.320", "d": "0.400", "f": "0.500"}.items():
        api.set_spot_price("g5.xlarge", f"us-east-1{zone}", price)
    for zone, score in {"a": 3, "b": 9, "c": 9, "d": 10, "f": 10}.items():
        api.set_placement_score(f"us-east-1{zone}", score)
    listing = ask(accelerators=A10G, use_spot=True, max_usd_per_hour=Decimal("0.5"))
    small = [offer.zone[-1] for offer in listing.offers if offer.instance_type == "g5.xlarge"]
    assert small == ["b", "c", "a", "d", "f"]
    assert listing.notes[0].startswith(
        "spot order: within 20 % of the cheapest by placement score (of 10: us-east-1b 9,"
    )
    (asked,) = api.calls("ec2", "GetSpotPlacementScores")
    assert (asked.params["TargetCapacity"], asked.params["SingleAvailabilityZone"]) == ("1", "true")


def test_placement_scores_are_requested_once_in_half_an_hour(ask: Ask, api: Box, clock: SetClock) -> None:
    """AWS limits the different requests of an account per day, so the same requirements send the same request."""
    first = ask(accelerators=A10G, use_spot=True, regions=("us-west-2", "us-east-1"))
    clock.sleep(timedelta(minutes=25))
    ask(accelerators=A10G, use_spot=True, regions=("us-east-1", "us-west-2"))
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 1
    clock.sleep(timedelta(minutes=10))
    api.set_placement_score("us-east-1a", 1)
    assert ask(accelerators=A10G, use_spot=True, regions=("us-east-1", "us-west-2")).offers != first.offers
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 2


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "MaxConfigLimitExceeded", "InternalError"])
def test_without_placement_scores_the_cheapest_comes_first(ask: Ask, api: Box, code: str) -> None:
    """Scores are advice: without permission, or over the limit, a note says so and the offers are listed.

    fact: aws-placement-scores
    """
    api.fail_next("GetSpotPlacementScores", code, times=None)
    listing = ask(accelerators=A10G, use_spot=True)
    prices_of = [offer.total_usd_per_hour for offer in listing.offers]
    assert prices_of == sorted(prices_of)
    assert listing.notes == (f"spot order: cheapest first (AWS gave no placement scores: {code})",)
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 1


def test_a_listing_without_permission_names_the_call_to_allow(ask: Ask, api: Box) -> None:
    """The snapshot is not used: the account answers, and only the permission is missing."""
    api.fail_next("GetProducts", "AccessDeniedException", times=None)
    with pytest.raises(KedgeError, match="offers of AWS can't be listed") as refused:
        ask(accelerators=A10G)
    assert "GetProducts" in refused.value.fix
