"""Stored prices and types: the cache of a day, and the shipped snapshot."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.market.refresh import refresh_snapshot
from orchestrator.adapters.providers.aws.market.snapshot import read_snapshot, snapshot_path
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.adapters.aws.market.asking import A10G, NOBODY, Ask, SetClock
from tests.cloudbox.aws.box import Box


def test_what_rarely_changes_is_queried_once_a_day_and_the_plan_shows_its_age(
    ask: Ask, api: Box, clock: SetClock
) -> None:
    """A second listing queries what changes: spot prices, placement scores, running machines, the default network."""
    assert ask(accelerators=A10G, use_spot=True).basis == "live"
    first, api_calls = clock.now(), len(api.calls())
    clock.sleep(timedelta(hours=3))
    api.reset_calls()
    again = ask(accelerators=A10G, use_spot=True)
    assert sorted(call.action for call in api.calls()) == [
        "DescribeInstances",
        "DescribeSpotPriceHistory",
        "DescribeVpcs",
        "GetSpotPlacementScores",
    ]
    assert again.basis == f"images, prices, quotas, types, zone ids of {first:%Y-%m-%d %H:%M} UTC, the rest live"
    clock.sleep(timedelta(hours=22))
    api.reset_calls()
    assert ask(accelerators=A10G, use_spot=True).basis == "live"
    assert len(api.calls()) == api_calls


def test_without_network_the_plan_uses_the_snapshot(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The basis names the snapshot and its day; a note says why it is used."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    listing = ask(user=AwsSession(), accelerators=A10G)
    assert listing.offers[0].instance_type == "g5.xlarge"
    assert listing.offers[0].usd_per_hour == Decimal("1.006")
    assert listing.basis == read_snapshot(snapshot_path()).basis
    assert "2026" in listing.basis
    assert "could not be queried" in listing.notes[0]
    assert not any(offer.live for offer in listing.offers)


def test_without_credentials_the_plan_uses_the_snapshot(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody without an account can see what a run would cost."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    listing = ask(user=AwsSession(), accelerators=Accelerators(name="h100", count=8), use_spot=True)
    assert listing.offers[0].usd_per_hour == Decimal("17.6289")
    assert "credentials" in listing.notes[0]


def test_a_zone_by_name_costs_the_highest_price_of_the_snapshot(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the account knows which zone a name means, and a worst case must not be too low."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    (offer,) = ask(user=AwsSession(), accelerators=Accelerators(name="t4"), zone="us-east-1a", use_spot=True).offers
    assert (offer.zone, offer.usd_per_hour) == ("us-east-1a", Decimal("0.2158"))


def test_a_region_that_the_snapshot_lacks_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of another region would be wrong."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    with pytest.raises(BadRequestError, match="don't cover sa-east-1"):
        ask(user=AwsSession(), accelerators=A10G, regions=("sa-east-1",))


def test_the_shipped_snapshot_names_the_source_of_its_figures() -> None:
    """Each type has a price above zero, on demand and for spot."""
    kept = read_snapshot(snapshot_path())
    assert {"read"} <= set(kept.source)
    names = {kind.name for kind in kept.types}
    assert {price.type for price in kept.prices} == names
    for price in kept.prices:
        assert price.usd_per_hour > 0
        assert price.spot, price
        most = price.usd_per_hour + Decimal("0.0001")  # the catalogue rounds spot prices
        assert all(usd is None or 0 < usd < most for usd in price.spot.values()), price


def test_a_refreshed_snapshot_is_what_aws_sells_now(
    session: AwsSession, api: Box, clock: SetClock, tmp_path: Path
) -> None:
    """It can be used offline. Its own day is the basis, and it names zones by id."""
    path = tmp_path / "offers.json"
    api.set_spot_price("g5.xlarge", "us-east-1a", "0.123")
    said = refresh_snapshot(session, clock, path=path, regions=("us-east-1",))
    assert (said["path"], said["regions"]) == (str(path), ["us-east-1"])
    kept = read_snapshot(path)
    assert kept.basis == f"a snapshot of {clock.now():%Y-%m-%d}"
    (price,) = (price for price in kept.prices if price.type == "g5.xlarge")
    assert price.usd_per_hour == Decimal("1.006")
    assert Decimal("0.123") in price.spot.values()
    assert all(zone.startswith("use1-az") for zone in price.spot)
    zones = api.client("ec2").describe_availability_zones()["AvailabilityZones"]
    (zone_id,) = (zone["ZoneId"] for zone in zones if zone["ZoneName"] == "us-east-1a")
    (market,) = kept.markets(Resources(accelerators=A10G, use_spot=True), ("us-east-1",), None)
    assert (zone_id, Decimal("0.123")) in {(sale.zone, sale.usd_per_hour) for sale in market.sales}


def test_a_refresh_that_fails_leaves_the_snapshot_as_it_was(
    session: AwsSession, api: Box, clock: SetClock, tmp_path: Path
) -> None:
    """Half a snapshot would be worse than an old one."""
    path = tmp_path / "offers.json"
    path.write_bytes(snapshot_path().read_bytes())
    api.fail_next("GetProducts", "AccessDeniedException", times=None)
    with pytest.raises(KedgeError, match="can't be taken"):
        refresh_snapshot(session, clock, path=path)
    assert path.read_bytes() == snapshot_path().read_bytes()
