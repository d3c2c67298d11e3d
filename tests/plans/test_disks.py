"""How quick a disk is, as data: each case is what a job asks for, and the disk that it gets or the refusal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.disk import Disk, check_initialization, plan_disk
from tests.plans.cases import read_cases


@pytest.mark.parametrize("case", read_cases("disks"))
def test_disk(case: dict[str, Any]) -> None:
    """The case's disk follows, or its refusal with the reason and a way out."""
    if "refused" in case:
        with pytest.raises(BadRequestError) as caught:
            plan_disk(case["size_gib"], iops=case.get("iops"), mibps=case.get("mibps"))
        assert str(caught.value) == case["refused"]
        return
    disk = plan_disk(case["size_gib"], iops=case.get("iops"), mibps=case.get("mibps"))
    assert disk == msgspec.convert(case["disk"], Disk)


@pytest.mark.parametrize("mibps", [100, 300])
def test_a_volume_is_filled_from_its_snapshot_at_a_rate_that_ebs_has(mibps: int) -> None:
    """Both limits are in."""
    check_initialization("snap-1", mibps)
    check_initialization(None, None)


@pytest.mark.parametrize("mibps", [99, 301])
def test_another_rate_is_refused(mibps: int) -> None:
    """The refusal names the rates that there are."""
    with pytest.raises(BadRequestError) as caught:
        check_initialization("snap-1", mibps)
    assert str(caught.value) == (
        f"initialization_rate: {mibps} is outside of what EBS volumes have\n"
        "  why: that is 100 to 300 MiB/s\n"
        "  fix: choose a value between these, or leave `initialization_rate` out"
    )


def test_a_rate_without_a_snapshot_is_refused() -> None:
    """There is nothing to fill the volume with."""
    with pytest.raises(BadRequestError) as caught:
        check_initialization(None, 100)
    assert str(caught.value) == (
        "initialization_rate needs a snapshot\n"
        "  why: a blank volume is quick at once: there is nothing to fill it with\n"
        "  fix: name a `snapshot`, or leave `initialization_rate` out"
    )
