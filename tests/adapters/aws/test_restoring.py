"""Data volumes from snapshots: looked up while planning, priced, filled at the requested rate, never formatted."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.ready import ensure_volumes
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.volumes.restoring import place_snapshots
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes
from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.job import AtEnd, Resources, VolumeSpec
from orchestrator.core.offer import Offer
from tests.adapters.aws.world import AwsWorld, QuickClock
from tests.cloudbox.aws.box import REGION

ELSEWHERE = "us-west-2"


def make_snapshot(aws: AwsWorld, gib: int = 40, region: str = REGION) -> str:
    """Create a snapshot of a volume. In the box it holds half of the volume's size."""
    ec2 = aws.api.client("ec2", region)
    volume = ec2.create_volume(AvailabilityZone=f"{region}a", Size=gib)["VolumeId"]
    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    ec2.delete_volume(VolumeId=volume)
    return str(snapshot)


def scans(snapshot_id: str, *, mibps: int | None = None, size_gib: int = 40) -> VolumeSpec:
    """Specify a volume from a snapshot."""
    return VolumeSpec(
        name="scans", target="data/scans", size_gib=size_gib, snapshot_id=snapshot_id, initialization_mibps=mibps
    )


def offers(aws: AwsWorld, *volumes: VolumeSpec, regions: tuple[str, ...] = ()) -> list[Offer]:
    """List the offers for the smallest machine with some volumes."""
    return list(aws.provider().offers(Resources(instance_type="m5.large", volumes=volumes, regions=regions)))


def test_a_volume_is_filled_from_its_snapshot_and_stays_encrypted(aws: AwsWorld) -> None:
    """Without a rate EBS fills it at its own pace, which costs nothing."""
    snapshot = make_snapshot(aws)
    aws.api.reset_calls()
    assert {offer.once_usd for offer in offers(aws, scans(snapshot))} == {Decimal(0)}
    aws.provider().create(aws.order(volumes=(scans(snapshot),)))
    (call,) = aws.api.calls("ec2", "CreateVolume")
    assert (call.params["SnapshotId"], call.params["Encrypted"]) == (snapshot, "true")
    assert "VolumeInitializationRate" not in call.params


def test_a_rate_is_sent_and_the_offer_prices_it(aws: AwsWorld) -> None:
    """The snapshot holds 20 GiB, the rate is 200 MiB/s. In us-east-1 the box charges half of the offer's price."""
    snapshot = make_snapshot(aws)
    spec = scans(snapshot, mibps=200)
    (offer, *_) = offers(aws, spec)
    aws.provider().create(aws.order(volumes=(spec,)))
    (call,) = [each for each in aws.api.calls("ec2", "CreateVolume") if "SnapshotId" in each.params]
    assert call.params["VolumeInitializationRate"] == "200"
    assert offer.once_usd == Decimal("0.000024") * 20 * 200
    assert offer.once_usd / 2 <= aws.api.meter().usd <= offer.once_usd


def test_an_existing_volume_is_not_filled_again(aws: AwsWorld) -> None:
    """No price is requested, nor the snapshot, which may have been deleted."""
    snapshot = make_snapshot(aws)
    spec = scans(snapshot, mibps=200)
    aws.provider().create(aws.order(volumes=(spec,)))
    aws.api.client("ec2").delete_snapshot(SnapshotId=snapshot)
    assert {offer.once_usd for offer in offers(aws, spec)} == {Decimal(0)}


def test_a_volume_from_a_snapshot_is_never_formatted(aws: AwsWorld) -> None:
    """Neither by the order that creates it nor by the next. It is deleted at the end like any volume of kedge's."""
    spec = replace(scans(make_snapshot(aws)), at_end=AtEnd.DELETE)
    api = AwsVolumes(AwsSession())
    for _ in range(2):
        (volume,) = ensure_volumes(api, aws.order(volumes=(spec,)), QuickClock())
        assert volume.boot.origin is Origin.RESTORED
    aws.provider().create(aws.order(volumes=(spec,)))
    aws.provider().destroy(aws.order().id)
    assert any(line.startswith("deleted data volume scans") for line in aws.provider().release(aws.order().run_id))


def test_a_snapshot_pins_the_region(aws: AwsWorld) -> None:
    """Requested regions without the snapshot are left out."""
    snapshot = make_snapshot(aws, region=ELSEWHERE)
    found = offers(aws, scans(snapshot), regions=(REGION, ELSEWHERE))
    assert {offer.region for offer in found} == {ELSEWHERE}
    with pytest.raises(BadRequestError, match=snapshot) as refused:
        offers(aws, scans(snapshot))
    assert f"{REGION} has no such snapshot" in refused.value.why
    assert "--region" in refused.value.fix


def test_an_unusable_snapshot_is_refused_before_anything_is_created(aws: AwsWorld) -> None:
    """It is larger than the volume, or in the archive tier. EC2 would refuse it after the plan was confirmed."""
    snapshot = make_snapshot(aws)
    aws.api.reset_calls()
    with pytest.raises(BadRequestError, match="scans can't be made") as refused:
        offers(aws, scans(snapshot, size_gib=39))
    assert refused.value.fix == "write size: 40 or more"
    aws.api.client("ec2").modify_snapshot_tier(SnapshotId=snapshot, StorageTier="archive")
    with pytest.raises(BadRequestError, match="scans can't be made") as archived:
        offers(aws, scans(snapshot))
    assert "archive" in archived.value.why
    assert not aws.api.calls("ec2", "CreateVolume")


class StillCopying:
    """An EC2 client whose snapshot is not complete yet; moto's snapshots are complete at once."""

    def describe_snapshots(self, **_: object) -> dict[str, Any]:
        return {"Snapshots": [{"State": "pending", "Progress": "31%", "VolumeSize": 40}]}


def test_a_snapshot_that_is_not_complete_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the progress, and says that waiting helps."""
    session = AwsSession()
    monkeypatch.setattr(session, "client", lambda *_: StillCopying())
    resources = Resources(regions=(REGION,), volumes=(scans("snap-0a1b2c3d4e5f60718"),))
    with pytest.raises(BadRequestError, match="scans can't be made") as refused:
        place_snapshots(resources, session, None)
    assert refused.value.why == "it is pending (31%)"


@pytest.mark.parametrize(
    "params", [{"Size": 39}, {"Size": 40, "VolumeInitializationRate": 99}, {"VolumeInitializationRate": 301}]
)
def test_the_box_refuses_what_ec2_does(aws: AwsWorld, params: dict[str, int]) -> None:
    """A volume that is smaller than its snapshot, and rates that EBS does not offer."""
    snapshot = make_snapshot(aws)
    with pytest.raises(ClientError, match="Invalid"):
        aws.api.client("ec2").create_volume(AvailabilityZone=f"{REGION}a", SnapshotId=snapshot, **params)


def test_a_rate_is_billed_even_if_no_machine_is_created(aws: AwsWorld) -> None:
    """EBS bills it once the volume exists, even if it is deleted at once. So each tried offer costs it."""
    spec = scans(make_snapshot(aws), mibps=300)
    for number in (1, 2):
        aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
        with pytest.raises(NoCapacityError):
            aws.provider().create(aws.order(number, volumes=(spec,)))
    once = Decimal("0.000012") * 20 * 300
    assert aws.api.meter().usd >= 2 * once
