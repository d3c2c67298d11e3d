"""Prices of machines and disks: from AWS's price list, and spot prices by zone.

A few regions have the Pricing API, which answers for all of them. Its entries are JSON within JSON; see
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.core.values.disk import LEAST_IOPS, LEAST_MIBPS, Disk

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import SpotPriceTypeDef
    from mypy_boto3_pricing import PricingClient

HOURS_PER_MONTH = 730
"""How AWS turns prices a month into prices an hour."""

ADDRESS_USD_PER_HOUR = Decimal("0.005")
"""The price of a public IPv4 address in use, in every region, since February 2024
(https://aws.amazon.com/vpc/pricing/, read in November 2026)."""

INITIALIZATION_USD = Decimal("0.000024")
"""The price of filling a volume from a snapshot, once: per GiB in the snapshot and per MiB/s of the rate.

It is twice the price in us-east-1: the other regions' prices aren't known, and no disk there costs twice as much.
inferred: ebs-initialization-price."""

_MICRO = Decimal("0.000001")


def pricing_region(region: str) -> str:
    """Return the nearest region that has the Pricing API."""
    if region.startswith(("eu-", "af-", "me-", "il-")):
        return "eu-central-1"
    return "ap-south-1" if region.startswith("ap-") else "us-east-1"


def ask_machine_price(pricing: PricingClient, region: str, instance_type: str) -> Decimal | None:
    """Request the on-demand price an hour of a Linux machine; None if the type isn't sold."""
    filters = {
        "regionCode": region,
        "instanceType": instance_type,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
    }
    return parse_price(_ask(pricing, filters), unit="Hrs")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPrices:
    """The prices of gp3 disks in a region, in dollars a month.

    Attributes:
        gib: per GiB.
        iops: per IOPS beyond those that every disk includes.
        mibps: per MiB/s beyond those that every disk includes.
    """

    gib: Decimal = Decimal(0)
    iops: Decimal = Decimal(0)
    mibps: Decimal = Decimal(0)

    def usd_per_hour(self, disks: Iterable[Disk]) -> Decimal:
        """Return the price an hour of these disks together."""
        months = sum(
            self.gib * disk.size_gib + self.iops * (disk.iops - LEAST_IOPS) + self.mibps * (disk.mibps - LEAST_MIBPS)
            for disk in disks
        )
        return (Decimal(months) / HOURS_PER_MONTH).quantize(_MICRO)


def ask_disk_prices(pricing: PricingClient, region: str) -> DiskPrices | None:
    """Request the prices of gp3 disks: size, IOPS and throughput are three products; None if one is missing."""
    listed = list(_ask(pricing, {"regionCode": region, "volumeApiName": "gp3"}))
    gib, iops = parse_price(listed, unit="GB-Mo"), parse_price(listed, unit="IOPS-Mo")
    # Listed per GiB/s (fact: gp3-price-units).
    gibps = parse_price(listed, unit="GiBps-mo")
    if gib is None or iops is None or gibps is None:
        return None
    return DiskPrices(gib=gib, iops=iops, mibps=gibps / 1024)


def ask_spot_prices(ec2: EC2Client, types: Sequence[str], now: datetime) -> dict[tuple[str, str], Decimal]:
    """Request the current spot prices an hour, by zone and type; a zone without spot machines is missing."""
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=list(types),  # type: ignore[arg-type]  # the stubs list the types of their own day
        ProductDescriptions=["Linux/UNIX"],
        StartTime=now,
    )
    return newest_prices(entry for page in pages for entry in page["SpotPriceHistory"])


def newest_prices(history: Iterable[SpotPriceTypeDef]) -> dict[tuple[str, str], Decimal]:
    """Keep the newest price of each zone and type: the answer for a StartTime includes the price before it."""
    newest: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
    for entry in history:
        key = entry["AvailabilityZone"], entry["InstanceType"]
        if key not in newest or entry["Timestamp"] > newest[key][0]:
            newest[key] = entry["Timestamp"], parse_usd(entry["SpotPrice"])
    return {key: price for key, (_, price) in newest.items()}


def parse_price(price_list: Iterable[str], *, unit: str) -> Decimal | None:
    """Return the first price in dollars for a unit (`Hrs`, `GB-Mo`) that isn't zero."""
    dimensions = (each for entry in price_list for each in _dimensions(json.loads(entry)) if each["unit"] == unit)
    return next((price for each in dimensions if (price := parse_usd(each["pricePerUnit"].get("USD", "0"))) > 0), None)


def parse_usd(text: str) -> Decimal:
    """Parse a price, rounded to a millionth of a dollar, without trailing zeros."""
    price = Decimal(text).quantize(_MICRO).normalize()
    return price if price.as_tuple().exponent <= 0 else price.quantize(Decimal(1))  # type: ignore[operator]


def _ask(pricing: PricingClient, filters: dict[str, str]) -> Iterator[str]:
    pages = pricing.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
    )
    return (entry for page in pages for entry in page["PriceList"])


def _dimensions(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        yield from term["priceDimensions"].values()
