"""The box sells what AWS sells: types, zones, prices."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from decimal import Decimal

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import code_of, order, refusal


def test_prices_are_found_by_filters(api: Box) -> None:
    """One product is left when all of its filters are given, with the list price."""
    wanted = {
        "instanceType": "g5.12xlarge",
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
    found = api.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]

    assert len(found) == 1
    (term,) = json.loads(found[0])["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (dimension["unit"], Decimal(dimension["pricePerUnit"]["USD"])) == ("Hrs", Decimal("5.672"))


def test_prices_come_in_pages(api: Box) -> None:
    """What is asked for without filters is long, and comes in pages without a gap or a repetition."""
    pages = (
        api.client("pricing")
        .get_paginator("get_products")
        .paginate(
            ServiceCode="AmazonEC2", Filters=[{"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"}]
        )
    )
    sizes, skus = [], []
    for page in pages:
        sizes.append(len(page["PriceList"]))
        skus += [json.loads(entry)["product"]["sku"] for entry in page["PriceList"]]

    assert len(sizes) > 1
    assert max(sizes) == 100
    assert len(set(skus)) == len(skus)


def test_spot_prices_differ_by_zone_and_can_be_set(api: Box) -> None:
    """The history has every zone that offers the type, at the price that the test set, and below on demand."""
    api.set_spot_price("g4dn.xlarge", "us-east-1b", "0.111")
    history = api.client("ec2").describe_spot_price_history(
        InstanceTypes=["g4dn.xlarge"], ProductDescriptions=["Linux/UNIX"], StartTime=datetime.now(UTC)
    )["SpotPriceHistory"]
    prices = {entry["AvailabilityZone"]: Decimal(entry["SpotPrice"]) for entry in history}

    assert prices["us-east-1b"] == Decimal("0.111")
    assert len(prices) == len(history) == len(set(prices.values()))
    assert all(price < Decimal("0.526") for price in prices.values())


def test_bid_under_the_spot_price_is_refused(api: Box) -> None:
    """A maximum price below the zone's price gets no machine."""
    api.set_spot_price("g4dn.xlarge", "us-east-1b", "0.2")
    market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time", "MaxPrice": "0.1"}}
    bid = order(api, InstanceMarketOptions=market, Placement={"AvailabilityZone": "us-east-1b"})

    assert code_of(refusal(api.client("ec2").run_instances, **bid)) == "SpotMaxPriceTooLow"


def test_types_and_their_zones_are_quick_to_ask_for(api: Box) -> None:
    """Filtered questions for types and offerings tell GPUs and zones, in far less than a second."""
    started = time.monotonic()
    types = api.client("ec2").describe_instance_types(InstanceTypes=["g4dn.12xlarge"])["InstanceTypes"]
    offers = api.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["p3.8xlarge"]}]
    )["InstanceTypeOfferings"]

    assert types[0]["GpuInfo"]["Gpus"][0]["Name"] == "T4"
    assert types[0]["GpuInfo"]["Gpus"][0]["Count"] == 4
    assert {offer["Location"] for offer in offers} < {f"us-east-1{letter}" for letter in "abcdef"}
    assert time.monotonic() - started < 3
