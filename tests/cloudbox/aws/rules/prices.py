"""What machines and volumes cost in the box.

On-demand prices of Linux machines in us-east-1, in dollars an hour. They make the box's world plausible, and nothing
outside the tests reads them. The types that are in infra/aws/offers.json too have the same price there (compared on
2026-11-21); the others were written from memory, and nobody has checked them.
"""

from __future__ import annotations

from decimal import Decimal

from tests.cloudbox.aws.wire import moto_state

_ON_DEMAND = {
    "c6i.large": "0.085",
    "c6i.xlarge": "0.17",
    "g4dn.xlarge": "0.526",
    "g4dn.2xlarge": "0.752",
    "g4dn.4xlarge": "1.204",
    "g4dn.8xlarge": "2.176",
    "g4dn.12xlarge": "3.912",
    "g4dn.16xlarge": "4.352",
    "g4dn.metal": "7.824",
    "g5.xlarge": "1.006",
    "g5.2xlarge": "1.212",
    "g5.4xlarge": "1.624",
    "g5.8xlarge": "2.448",
    "g5.12xlarge": "5.672",
    "g5.16xlarge": "4.096",
    "g5.24xlarge": "8.144",
    "g5.48xlarge": "16.288",
    "g6.xlarge": "0.8048",
    "g6.2xlarge": "0.9776",
    "g6.4xlarge": "1.3232",
    "g6.8xlarge": "2.0144",
    "g6.12xlarge": "4.6016",
    "g6.16xlarge": "3.3968",
    "g6.24xlarge": "6.6752",
    "g6.48xlarge": "13.3504",
    "g6e.xlarge": "1.861",
    "g6e.2xlarge": "2.24208",
    "g6e.12xlarge": "10.49264",
    "g6e.48xlarge": "30.13118",
    "m5.large": "0.096",
    "m5.xlarge": "0.192",
    "p3.2xlarge": "3.06",
    "p3.8xlarge": "12.24",
    "p3.16xlarge": "24.48",
    "p4d.24xlarge": "21.957642",
    "p5.48xlarge": "55.04",
    "t3.micro": "0.0104",
    "t3.small": "0.0208",
    "t3.medium": "0.0416",
    "t3.large": "0.0832",
}

ADDRESS_USD_PER_HOUR = Decimal("0.005")
"""Of a public IPv4 address that is in use (https://aws.amazon.com/vpc/pricing/, read in November 2026)."""

# A region's price over us-east-1's, the same for every type here (at AWS it isn't): that of g5g.xlarge in
# github.com/skypilot-org/skypilot-catalog at 00148f2, catalogs/v8/aws/vms.csv. In infra/aws/offers.json g4dn.xlarge has
# the same in eu-central-1 and eu-west-1; the Asian ones were not compared with another type.
_REGIONS = {
    "us-east-1": "1",
    "us-west-2": "1",
    "us-east-2": "1",
    "eu-central-1": "1.251",
    "eu-west-1": "1.116",
    "ap-northeast-1": "1.350",
    "ap-northeast-2": "1.230",
    "ap-southeast-1": "1.399",
}
_ELSEWHERE = "1.2"
_USD_PER_VCPU_HOUR = Decimal("0.05")
"""For what is not in the table (nobody can look its price up, but it must not be free)."""

_SPOT = {"a": "0.30", "b": "0.34", "c": "0.38", "d": "0.33", "e": "0.40", "f": "0.36"}
"""Spot over on-demand, by the zone's letter: about a third, and not the same anywhere."""

_VOLUMES = {"gp3": "0.08", "gp2": "0.10", "io1": "0.125", "io2": "0.125", "st1": "0.045", "sc1": "0.015"}
"""Dollars a GB-month in us-east-1, from memory; gp3 as in infra/aws/offers.json."""

GP3_USD_PER_IOPS_MONTH = Decimal("0.005")
"""Beyond 3,000, in us-east-1 (https://aws.amazon.com/ebs/pricing/, read in November 2026)."""

GP3_USD_PER_MIBPS_MONTH = Decimal("0.04")
"""Beyond 125 MiB/s, in us-east-1, likewise."""

_INITIALIZATION_USD = Decimal("0.000012")
"""For a GiB that a snapshot holds and a MiB/s, in us-east-1. fact: ebs-initialization-price."""

_GP3_IOPS, _GP3_MIBPS = 3_000, 125
"""What every gp3 volume has without a price."""

_HOURS_PER_MONTH = 730


def listed_types() -> list[str]:
    """Return the types that have a price."""
    return sorted(_ON_DEMAND)


def on_demand_usd_per_hour(instance_type: str, region: str) -> Decimal | None:
    """Return the list price; None where there is none."""
    price = _ON_DEMAND.get(instance_type)
    return None if price is None else Decimal(price) * Decimal(_REGIONS.get(region, _ELSEWHERE))


def usd_per_hour(instance_type: str, region: str) -> Decimal:
    """Return what the meter counts for an on-demand machine."""
    listed = on_demand_usd_per_hour(instance_type, region)
    return _USD_PER_VCPU_HOUR * moto_state.vcpus(instance_type) if listed is None else listed


def usual_spot_usd_per_hour(instance_type: str, zone: str) -> Decimal:
    """Return the spot price that a zone starts with."""
    share = Decimal(_SPOT.get(zone[-1:], "0.35"))
    return (usd_per_hour(instance_type, zone.rstrip("abcdef")) * share).quantize(Decimal("0.000001"))


def initialization_usd(region: str) -> Decimal:
    """Return the price of a rate of initialization; nobody here knows it elsewhere, so that it is twice as high."""
    return _INITIALIZATION_USD * (1 if region == "us-east-1" else 2)


def volume_usd_per_gb_month(volume_type: str) -> Decimal:
    """Return the price of a volume's type."""
    return Decimal(_VOLUMES.get(volume_type, "0.05"))


def volume_usd_per_hour(volume_type: str, size_gb: int, *, iops: int = 0, mibps: int = 0) -> Decimal:
    """Return the price of a volume, by months of 730 hours; of gp3, what is beyond the baseline has a price too."""
    month = volume_usd_per_gb_month(volume_type) * size_gb
    if volume_type == "gp3":
        month += max(0, iops - _GP3_IOPS) * GP3_USD_PER_IOPS_MONTH
        month += max(0, mibps - _GP3_MIBPS) * GP3_USD_PER_MIBPS_MONTH
    return month / _HOURS_PER_MONTH
