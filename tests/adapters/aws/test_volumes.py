"""Data volumes: created once, found again, and kept, deleted or copied at the end as the job says."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import Stubber

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.find import locate_volumes
from orchestrator.adapters.cloud.volumes.ready import ensure_volumes
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError, NoCapacityError
from orchestrator.core.job import AtEnd, Resources, VolumeSpec
from tests.adapters.aws.world import RUN, AwsWorld, QuickClock
from tests.cloudbox.aws.box import REGION

M1 = f"{RUN}-m1"
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=20)


def volumes(aws: AwsWorld) -> list[dict[str, Any]]:
    """List the account's data volumes."""
    filters = [{"Name": "tag-key", "Values": ["kedge-volume"]}]
    return list(aws.api.client("ec2").describe_volumes(Filters=filters)["Volumes"])


def at_end(choice: AtEnd) -> tuple[VolumeSpec, ...]:
    return (VolumeSpec(name="scans", target="data/scans", size_gib=20, at_end=choice),)


def test_a_new_volume_is_created_in_the_machine_s_zone_and_attached(aws: AwsWorld) -> None:
    """It is encrypted, has its name, and exists before the machine looks for it."""
    machine = aws.provider().create(aws.order(volumes=(SCANS,)))
    (volume,) = volumes(aws)
    assert (volume["VolumeType"], volume["Encrypted"], volume["Size"]) == ("gp3", True, 20)
    assert volume["AvailabilityZone"] == f"{REGION}a"
    tags = {tag["Key"]: tag["Value"] for tag in volume["Tags"]}
    assert (tags["kedge-volume"], tags["kedge-run"], tags["kedge-at-end"]) == ("scans", RUN, "keep")
    (attachment,) = volume["Attachments"]
    assert (attachment["InstanceId"], attachment["Device"]) == (machine.provider_id, "/dev/sdf")


def test_a_volume_outlives_its_run_and_serves_the_next(aws: AwsWorld) -> None:
    """The release reports it as kept, with the warning that it bills. The next run gets the same volume.

    fact: aws-volumes-outlive-instances
    """
    aws.provider().create(aws.order(volumes=(SCANS,)))
    (before,) = volumes(aws)
    aws.provider().destroy(M1)
    (line,) = [line for line in aws.provider().release(RUN) if "volume" in line]
    assert line.startswith("kept data volume scans")
    aws.provider().create(aws.order(1, id="next-1-m1", run_id="next-1", volumes=(SCANS,)))
    (after,) = volumes(aws)
    assert after["VolumeId"] == before["VolumeId"]
    assert {"Key": "kedge-run", "Value": "next-1"} in after["Tags"]


def test_only_a_volume_that_kedge_made_may_be_formatted(aws: AwsWorld) -> None:
    """A user's own volume, tagged by hand, is never formatted. The machine gets each serial and who made the volume."""
    api = AwsVolumes(AwsSession())
    (made,) = ensure_volumes(api, aws.order(volumes=(SCANS,)), QuickClock())
    own = VolumeSpec(name="mine", target="data/mine", size_gib=1)
    tags = [{"Key": "kedge-volume", "Value": "mine"}]
    theirs = aws.api.client("ec2").create_volume(
        AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )["VolumeId"]
    again, found = ensure_volumes(api, aws.order(volumes=(SCANS, own)), QuickClock())
    assert (made.boot.origin, made.boot.serial) == (Origin.MADE, made.id.replace("-", ""))
    assert (again.id, again.boot.origin) == (made.id, Origin.MADE)
    assert (found.id, found.boot.origin, found.boot.device) == (theirs, Origin.FOUND, "/dev/xvdg")


def test_a_volume_pins_the_zone(aws: AwsWorld) -> None:
    """Offers are limited to its zone. A volume that does not exist yet allows any zone."""
    resources = Resources(volumes=(SCANS,))
    assert locate_volumes(AwsVolumes(AwsSession()), resources) == (resources, None)
    aws.provider().create(aws.order(zone=f"{REGION}b", volumes=(SCANS,)))
    there = Resources(volumes=(replace(SCANS, iops=3000, mibps=125),))
    assert locate_volumes(AwsVolumes(AwsSession()), resources) == (there, f"{REGION}b")
    with pytest.raises(BadRequestError, match=f"{REGION}b"):
        aws.provider().create(aws.order(2, zone=f"{REGION}a", volumes=(SCANS,)))


def test_without_credentials_a_job_with_a_volume_is_planned_from_the_snapshot(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume's price is in the offers, and the basis says what isn't known. A volume from a snapshot is refused."""
    aws.provider().create(aws.order(zone=f"{REGION}b", volumes=(SCANS,)))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    provider, wanted = aws.provider(), Resources(instance_type="g5.24xlarge", regions=(REGION,))
    (plain, *_), basis = provider.offers(wanted), provider.offers_basis
    offers = provider.offers(replace(wanted, volumes=(SCANS,)))
    assert len({offer.zone for offer in offers}) == 5
    assert not any(offer.live for offer in offers)
    assert offers[0].disk_usd_per_hour - plain.disk_usd_per_hour == pytest.approx(Decimal("0.002192"))
    assert provider.offers_basis == f"{basis}; the data volumes count as new ones, in any zone"
    with pytest.raises(KedgeError, match="volume"):
        provider.offers(replace(wanted, volumes=(replace(SCANS, snapshot_id="snap-0123"),)))


def test_volumes_in_two_zones_cannot_be_combined(aws: AwsWorld) -> None:
    """No machine can attach both. The refusal comes before any price is queried."""
    other = VolumeSpec(name="other", target="data/other", size_gib=1)
    aws.provider().create(aws.order(1, volumes=(SCANS,)))
    aws.provider().create(aws.order(2, zone=f"{REGION}b", volumes=(other,)))
    with pytest.raises(BadRequestError, match="scans"):
        locate_volumes(AwsVolumes(AwsSession()), Resources(volumes=(SCANS, other)))


def test_a_volume_in_use_is_not_taken(aws: AwsWorld) -> None:
    """The wait is as long as a machine takes to end, and no longer. No machine is created meanwhile."""
    aws.provider().create(aws.order(1, volumes=(SCANS,)))
    before = aws.clock.now()
    with pytest.raises(ConflictError, match="scans"):
        aws.provider().create(aws.order(1, id="next-1-m1", run_id="next-1", volumes=(SCANS,)))
    assert (aws.clock.now() - before).total_seconds() < 240
    assert len(aws.instances()) == 1


def test_a_machine_that_cannot_be_created_leaves_no_volume(aws: AwsWorld) -> None:
    """The next offer may be in another zone, where the volume could not be attached. It would still bill."""
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order(volumes=(SCANS,)))
    assert volumes(aws) == []
    aws.provider().create(aws.order(zone=f"{REGION}b", volumes=(SCANS,)))
    assert [volume["AvailabilityZone"] for volume in volumes(aws)] == [f"{REGION}b"]


@pytest.mark.parametrize(
    ("code", "elsewhere"),
    [
        ("VolumeTypeNotAvailableInZone", (REGION, f"{REGION}b")),
        ("InsufficientVolumeCapacity", (REGION, f"{REGION}b")),
        ("VolumeLimitExceeded", ("us-west-2", "us-west-2a")),
    ],
)
def test_a_volume_that_cannot_be_created_here_is_created_elsewhere(
    aws: AwsWorld, code: str, elsewhere: tuple[str, str]
) -> None:
    """A zone without gp3, or a region whose limit is reached, rules out its offers. The next may have room.

    fact: aws-volume-refusals
    """
    aws.api.fail_next("CreateVolume", code, times=None)
    with pytest.raises(NoCapacityError, match="scans can't be made") as refused:
        aws.provider().create(aws.order(volumes=(SCANS,)))
    assert aws.instances() == []
    assert code in refused.value.why
    here = aws.order().offer
    assert refused.value.covers(here)
    assert not refused.value.covers(replace(here, region=elsewhere[0], zone=elsewhere[1]))


def test_a_volume_is_deleted_at_the_end_where_the_job_says_so(aws: AwsWorld) -> None:
    """Nothing bills any more."""
    aws.provider().create(aws.order(volumes=at_end(AtEnd.DELETE)))
    aws.provider().destroy(M1)
    assert any(line.startswith("deleted data volume scans") for line in aws.provider().release(RUN))
    assert volumes(aws) == []
    assert [bill.kind for bill in aws.api.billing()] == []


def test_a_volume_is_copied_before_it_is_deleted(aws: AwsWorld) -> None:
    """The snapshot has the volume's name and its run."""
    aws.provider().create(aws.order(volumes=at_end(AtEnd.SNAPSHOT)))
    aws.provider().destroy(M1)
    (line,) = [line for line in aws.provider().release(RUN) if "volume" in line]
    filters = [{"Name": "tag:kedge-volume", "Values": ["scans"]}]
    (snapshot,) = aws.api.client("ec2").describe_snapshots(OwnerIds=["self"], Filters=filters)["Snapshots"]
    assert snapshot["State"] == "completed"
    assert snapshot["SnapshotId"] in line
    assert volumes(aws) == []


def test_a_machine_without_volumes_causes_no_volume_calls(aws: AwsWorld) -> None:
    """Volumes cost calls only if there are any."""
    aws.provider().create(aws.order())
    assert not [call for call in aws.api.calls("ec2") if "Volume" in call.action]


def test_a_repeated_order_attaches_what_was_left_unattached(aws: AwsWorld) -> None:
    """The order continues what a command left that died between the machine and its volume."""
    machine = aws.provider().create(aws.order(volumes=(SCANS,)))
    (volume,) = volumes(aws)
    aws.api.client("ec2").detach_volume(VolumeId=volume["VolumeId"], InstanceId=machine.provider_id, Device="/dev/sdf")
    aws.provider().create(aws.order(volumes=(SCANS,)))
    (volume,) = volumes(aws)
    assert volume["State"] == "in-use"


def test_a_run_that_never_had_a_volume_leaves_it_as_it_was(aws: AwsWorld) -> None:
    """It asked for a kept volume with `delete` but got no machine, so its setting does not count."""
    aws.provider().create(aws.order(volumes=(SCANS,)))
    aws.provider().destroy(M1)
    (before,) = volumes(aws)
    aws.api.fail_next("RunInstances", "InsufficientInstanceCapacity", status=500)
    with pytest.raises(NoCapacityError):
        aws.provider().create(aws.order(1, id="next-1-m1", run_id="next-1", volumes=at_end(AtEnd.DELETE)))
    assert not [line for line in aws.provider().release("next-1") if "volume" in line]
    (after,) = volumes(aws)
    assert after == before


def test_a_volume_that_kedge_did_not_make_is_never_deleted(aws: AwsWorld) -> None:
    """A user's own volume, tagged by hand, stays whatever the job says."""
    tags = [{"Key": "kedge-volume", "Value": "scans"}]
    aws.api.client("ec2").create_volume(
        AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )
    aws.provider().create(aws.order(volumes=at_end(AtEnd.DELETE)))
    aws.provider().destroy(M1)
    (line,) = [line for line in aws.provider().release(RUN) if "volume" in line]
    assert line.startswith("kept data volume scans")
    assert len(volumes(aws)) == 1


def test_a_volume_follows_the_setting_of_its_last_run(aws: AwsWorld) -> None:
    """The run that has it decides; the previous one no longer does."""
    aws.provider().create(aws.order(volumes=at_end(AtEnd.DELETE)))
    aws.provider().destroy(M1)
    aws.provider().create(aws.order(1, id="next-1-m1", run_id="next-1", volumes=(SCANS,)))
    aws.provider().destroy("next-1-m1")
    assert not [line for line in aws.provider().release(RUN) if "volume" in line]
    assert len(volumes(aws)) == 1


def test_an_existing_volume_is_priced_by_its_own_size(aws: AwsWorld) -> None:
    """The size in the job is for a new volume."""
    aws.provider().create(aws.order(volumes=(SCANS,)))
    smaller = VolumeSpec(name="scans", target="data/scans", size_gib=1)
    (small, *_) = aws.provider().offers(Resources(instance_type="m5.large", volumes=(smaller,)))
    (large, *_) = aws.provider().offers(Resources(instance_type="m5.large", volumes=(SCANS,)))
    assert small.disk_usd_per_hour == large.disk_usd_per_hour


def test_disks_have_the_requested_speed_and_bill_as_the_offer_said(aws: AwsWorld) -> None:
    """Root disk and volume. A large volume gets 500 MiB/s by default; an existing one is priced as it is."""
    fast = VolumeSpec(name="fast", target="data/fast", size_gib=20, mibps=1000)
    large = VolumeSpec(name="large", target="data/large", size_gib=500)
    resources = Resources(instance_type="m5.large", disk_mibps=1000, volumes=(fast, large))
    (offer, *_) = aws.provider().offers(resources)
    aws.provider().create(aws.order(disk_mibps=1000, volumes=(fast, large)))
    found = {volume["Size"]: (volume["Iops"], volume["Throughput"]) for volume in volumes(aws)}
    assert found == {20: (4000, 1000), 500: (3000, 500)}
    (launched,) = aws.api.calls("ec2", "RunInstances")
    root = {key.rpartition(".")[2]: said for key, said in launched.params.items() if ".Ebs." in key}
    assert (root["Iops"], root["Throughput"]) == ("4000", "1000")
    bills = sum(bill.usd_per_hour for bill in aws.api.billing() if bill.kind == "volume")
    assert offer.disk_usd_per_hour == pytest.approx(bills + Decimal("0.005"), abs=Decimal("0.00001"))
    slow = replace(fast, mibps=None)
    (again, *_) = aws.provider().offers(replace(resources, volumes=(slow, large)))
    assert again.disk_usd_per_hour == offer.disk_usd_per_hour


def test_a_run_s_volumes_are_those_that_exist(aws: AwsWorld) -> None:
    """EC2 still lists a deleted volume for some minutes. A volume in `error` exists, and never becomes available."""
    session = AwsSession()
    shown = aws.api.client("ec2").create_volume(AvailabilityZone=f"{REGION}a", Size=1)
    lost = {key: value for key, value in shown.items() if key != "ResponseMetadata"} | {"State": "error"}
    asked = [
        {"Name": "tag:kedge-run", "Values": [RUN]},
        {"Name": "tag-key", "Values": ["kedge-volume"]},
        {"Name": "status", "Values": ["creating", "available", "in-use", "error"]},
    ]
    with Stubber(session.client("ec2", REGION)) as ec2:
        ec2.add_response("describe_volumes", {"Volumes": [lost]}, {"Filters": asked})
        (listed,) = AwsVolumes(session).list_of_run(RUN, REGION)
    assert (listed.is_lost, listed.is_free) == (True, False)
