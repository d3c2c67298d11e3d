"""What `kedge volumes` says of one volume."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from orchestrator.adapters.providers.aws.volumes.listed import parse_volume


@pytest.mark.parametrize(
    ("size_gib", "iops", "mibps", "usd_per_month"),
    [(500, 3000, 125, "40"), (500, 3000, 500, "55"), (20, 4000, 1000, "41.6")],
)
def test_price_of_a_volume_has_what_it_costs_to_be_fast(
    size_gib: int, iops: int, mibps: int, usd_per_month: str
) -> None:
    """A volume bills for IOPS and throughput beyond those that every one includes, too, as the plan has said."""
    listed = parse_volume(
        {
            "VolumeId": "vol-0123456789abcdef0",
            "AvailabilityZone": "us-east-1a",
            "State": "available",
            "VolumeType": "gp3",
            "Size": size_gib,
            "Iops": iops,
            "Throughput": mibps,
            "CreateTime": datetime(2026, 11, 28, tzinfo=UTC),
        },
        "us-east-1",
    )
    assert listed.usd_per_hour * 730 == pytest.approx(Decimal(usd_per_month), abs=Decimal("0.001"))
