"""What an offer costs: spot and on demand, disks, the address, and the user's limits."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.adapters.providers.aws.market import prices
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import VolumeSpec
from tests.adapters.aws.market.asking import A10G, Ask
from tests.cloudbox.aws.box import Box


def test_each_zone_has_its_current_spot_price(ask: Ask, api: Box) -> None:
    """A zone that has become cheap comes first at once: spot prices are never cached."""
    before = ask(accelerators=A10G, use_spot=True).offers
    assert all(offer.spot and offer.usd_per_hour < Decimal("1.006") * 5 for offer in before)
    dearest = [offer for offer in before if offer.instance_type == "g5.xlarge"][-1]
    api.set_spot_price("g5.xlarge", dearest.zone, "0.1")
    after = ask(accelerators=A10G, use_spot=True).offers
    assert (after[0].zone, after[0].instance_type, after[0].usd_per_hour) == (dearest.zone, "g5.xlarge", Decimal("0.1"))


@pytest.mark.parametrize(("most", "cap"), [(None, "1.006"), ("0.8", "0.8"), ("2", "1.006")])
def test_the_worst_case_of_spot_is_the_on_demand_price_or_the_user_s_limit(
    ask: Ask, api: Box, most: str | None, cap: str
) -> None:
    """The worst case of a plan includes disks and the address."""
    api.set_spot_price("g5.xlarge", "us-east-1a", "0.1")
    limit = {"max_usd_per_hour": Decimal(most)} if most else {}
    (offer, *_) = ask(instance_type="g5.xlarge", use_spot=True, **limit).offers
    assert (offer.usd_per_hour, offer.cap_usd_per_hour) == (Decimal("0.1"), Decimal(cap))
    assert offer.worst_usd_per_hour == Decimal(cap) + offer.disk_usd_per_hour


def test_an_on_demand_price_does_not_rise(ask: Ask) -> None:
    """The worst case is the current price."""
    offer = ask(instance_type="g5.xlarge").offers[0]
    assert offer.worst_usd_per_hour == offer.total_usd_per_hour


def test_nothing_above_the_user_s_price_limit_is_offered(ask: Ask) -> None:
    """If no offer is left, the error names the cheapest."""
    offers = ask(accelerators=A10G, max_usd_per_hour=Decimal("1.3")).offers
    assert {offer.instance_type for offer in offers} == {"g5.xlarge", "g5.2xlarge"}
    with pytest.raises(NoCapacityError, match=r"at most \$0\.5") as refused:
        ask(accelerators=A10G, max_usd_per_hour=Decimal("0.5"))
    assert "g5.xlarge in us-east-1a at $1.006" in refused.value.why


def test_disks_and_the_address_are_part_of_the_price(ask: Ask) -> None:
    """Disks cost $0.08 a GiB-month of 730 hours by the price list; the address costs $0.005 an hour."""
    volume = VolumeSpec(name="imagenet", target="data", size_gib=500, mibps=125)
    first = ask(accelerators=A10G, disk_gib=150, volumes=(volume,)).offers[0]
    assert first.disk_gib == 150
    assert first.disk_usd_per_hour == Decimal("0.076233")
    assert first.total_usd_per_hour == Decimal("1.006") + Decimal("0.076233")


def test_extra_iops_and_throughput_are_part_of_the_price_and_the_worst_case(ask: Ask) -> None:
    """Per month: $0.005 for each of the IOPS beyond 3,000, $0.04 for each MiB/s beyond 125. 500 GiB have 500 MiB/s."""
    small = VolumeSpec(name="a", target="data", size_gib=100)
    large = replace(small, size_gib=500)
    fast = replace(small, mibps=1000, iops=6000)

    def disks(*volumes: VolumeSpec, **root: int) -> Decimal:
        offer = ask(accelerators=A10G, disk_gib=150, volumes=volumes, **root).offers[0]
        assert offer.worst_usd_per_hour == offer.usd_per_hour + offer.disk_usd_per_hour
        return (offer.disk_usd_per_hour - Decimal("0.005")) * 730

    assert disks(small) == pytest.approx(Decimal(250) * Decimal("0.08"), abs=Decimal("0.001"))
    assert disks(large) - disks() == pytest.approx(500 * Decimal("0.08") + 375 * Decimal("0.04"), abs=Decimal("0.002"))
    extra = 875 * Decimal("0.04") + 3000 * Decimal("0.005")
    assert disks(fast) - disks(small) == pytest.approx(extra, abs=Decimal("0.002"))
    root = disks(disk_mibps=1000) - disks()
    assert root == pytest.approx(875 * Decimal("0.04") + 1000 * Decimal("0.005"), abs=Decimal("0.002"))


def test_a_price_is_parsed_from_the_price_list() -> None:
    """Entries with price zero (capacity that is paid for elsewhere) and entries in other units are ignored."""
    assert prices.parse_price([_entry("0.0000000000"), _entry("1.0060000000")], unit="Hrs") == Decimal("1.006")
    assert prices.parse_price([_entry("12.0000000000")], unit="Hrs") == Decimal(12)
    assert prices.parse_price([_entry("1.0060000000")], unit="GB-Mo") is None
    assert prices.parse_price([], unit="Hrs") is None


def test_the_newest_spot_price_of_a_zone_counts() -> None:
    """AWS also returns the price before the requested time, and in any order."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    history: list[Any] = [
        {"AvailabilityZone": "us-east-1a", "InstanceType": "g5.xlarge", "SpotPrice": "0.4", "Timestamp": now},
        {
            "AvailabilityZone": "us-east-1a",
            "InstanceType": "g5.xlarge",
            "SpotPrice": "0.9",
            "Timestamp": now - timedelta(hours=5),
        },
    ]
    assert prices.newest_prices(history) == {("us-east-1a", "g5.xlarge"): Decimal("0.4")}


def _entry(usd: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}, "description": "g5.xlarge"}
    return json.dumps({"product": {}, "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}}})
