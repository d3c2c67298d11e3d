"""AWS's Pricing API: GetProducts, as far as prices of machines and volumes are asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from werkzeug.wrappers import Response

from tests.cloudbox.aws.rules import prices
from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError, json_answer
from tests.cloudbox.aws.wire.call import Call

_LARGEST_PAGE = 100
_PUBLISHED = "2026-11-01T00:00:00Z"
_OFFER_TERM = "JRTCKXETXF"
_DIMENSION = "6YS6EN2CT7"
_SYSTEMS = {"Linux": 1.0, "Windows": 1.35}
_CAPACITY = ("Used", "UnusedCapacityReservation", "AllocatedCapacityReservation")
_LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-1": "US West (N. California)",
    "us-west-2": "US West (Oregon)",
    "eu-west-1": "EU (Ireland)",
    "eu-central-1": "EU (Frankfurt)",
}


def get_products(call: Call) -> Response:
    """Answer GetProducts.

    A type is sold in several ways (system, capacity): whoever asks without filters gets all of them, as from AWS.

    Raises:
        AwsError: Another service than AmazonEC2 is asked for, or with other filters than exact ones.
    """
    if call.params.get("ServiceCode") != "AmazonEC2":
        raise AwsError("InvalidParameterException", "the box has the prices of AmazonEC2 only")
    filters = call.params.get("Filters", [])
    if any(one.get("Type", "TERM_MATCH") not in ("TERM_MATCH", "EQUALS") for one in filters):
        raise AwsError("InvalidParameterException", "the box knows filters of type TERM_MATCH only")
    wanted = {one["Field"]: one["Value"] for one in filters}
    found = [json.dumps(entry) for entry in _products(wanted) if _matches(entry["product"], wanted)]
    size = min(int(call.params.get("MaxResults") or _LARGEST_PAGE), _LARGEST_PAGE)
    start = int(call.params.get("NextToken") or 0)
    page = {"FormatVersion": "aws_v1", "PriceList": found[start : start + size]}
    return json_answer(page | ({"NextToken": str(start + size)} if len(found) > start + size else {}))


def _matches(item: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    facts = {"productFamily": item["productFamily"], "sku": item["sku"], **item["attributes"]}
    return all(str(facts.get(name, "")).lower() == value.lower() for name, value in wanted.items())


def _products(wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    asked_region, asked_type = wanted.get("regionCode"), wanted.get("instanceType")
    regions = [asked_region] if asked_region else sorted(INSTANCE_TYPE_OFFERINGS["region"])
    types = [asked_type] if asked_type else prices.listed_types()
    for region, name in product(regions, types):
        if moto_state.zones_of(name, region):
            yield from _machines(name, region)
    for region in regions:
        yield from _volumes(region)


def _machines(name: str, region: str) -> Iterator[dict[str, Any]]:
    price = prices.on_demand_usd_per_hour(name, region)
    if price is None:
        return
    for (system, factor), capacity in product(_SYSTEMS.items(), _CAPACITY):
        usd = 0 if capacity == "AllocatedCapacityReservation" else float(price) * factor
        facts = {
            **_machine_facts(name),
            "operatingSystem": system,
            "capacitystatus": capacity,
            "preInstalledSw": "NA",
            "licenseModel": "No License required",
            "tenancy": "Shared",
            "marketoption": "OnDemand",
            "usagetype": f"{capacity}:{name}",
            "operation": "RunInstances" if system == "Linux" else "RunInstances:0002",
        }
        yield _entry("Compute Instance", region, facts, unit="Hrs", usd=usd)


def _machine_facts(name: str) -> dict[str, str]:
    known = INSTANCE_TYPES[name]
    gpus = sum(gpu["Count"] for gpu in known.get("GpuInfo", {}).get("Gpus", []))
    facts = {
        "instanceType": name,
        "vcpu": str(moto_state.vcpus(name)),
        "memory": f"{known['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
        "instanceFamily": "GPU instance" if gpus else "General purpose",
    }
    return facts | ({"gpu": str(gpus)} if gpus else {})


def _volumes(region: str) -> Iterator[dict[str, Any]]:
    for name in ("gp3", "gp2", "st1", "sc1"):
        usd = float(prices.volume_usd_per_gb_month(name))
        facts = {"volumeApiName": name, "usagetype": f"EBS:VolumeUsage.{name}"}
        yield _entry("Storage", region, facts, unit="GB-Mo", usd=usd)
    # fact: gp3-price-units
    for family, kind, unit, each in (
        ("System Operation", "VolumeP-IOPS", "IOPS-Mo", prices.GP3_USD_PER_IOPS_MONTH),
        ("Provisioned Throughput", "VolumeP-Throughput", "GiBps-mo", prices.GP3_USD_PER_MIBPS_MONTH * 1024),
    ):
        facts = {"volumeApiName": "gp3", "usagetype": f"EBS:{kind}.gp3"}
        yield _entry(family, region, facts, unit=unit, usd=float(each))


def _entry(family: str, region: str, facts: Mapping[str, str], *, unit: str, usd: float) -> dict[str, Any]:
    attributes = {
        "servicecode": "AmazonEC2",
        "servicename": "Amazon Elastic Compute Cloud",
        "locationType": "AWS Region",
        "location": _LOCATIONS.get(region, region),
        "regionCode": region,
        **facts,
    }
    sku = hashlib.sha256(json.dumps(attributes).encode()).hexdigest()[:16].upper()
    term, dimension = f"{sku}.{_OFFER_TERM}", f"{sku}.{_OFFER_TERM}.{_DIMENSION}"
    price = {
        "rateCode": dimension,
        "unit": unit,
        "beginRange": "0",
        "endRange": "Inf",
        "appliesTo": [],
        "description": f"${usd:.10f} per {unit}",
        "pricePerUnit": {"USD": f"{usd:.10f}"},
    }
    offer = {
        "sku": sku,
        "offerTermCode": _OFFER_TERM,
        "effectiveDate": _PUBLISHED,
        "termAttributes": {},
        "priceDimensions": {dimension: price},
    }
    return {
        "product": {"productFamily": family, "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {term: offer}},
        "version": "20261101000000",
        "publicationDate": _PUBLISHED,
    }
