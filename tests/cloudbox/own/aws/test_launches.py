"""RunInstances in the box keeps EC2's rules: tokens, limits, quotas, addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from tests.cloudbox.aws.box import Box, start_box
from tests.cloudbox.aws.launches import DEBIAN, DEEP_LEARNING, SPOT, code_of, image, instances, launch, order, refusal


def test_same_token_and_parameters_give_the_same_machine(api: Box) -> None:
    """A launch that is sent again makes no second machine."""
    first = launch(api, ClientToken="intent-1")
    again = launch(api, ClientToken="intent-1")

    assert again == first
    assert len(instances(api)) == 1


def test_token_survives_an_answer_that_was_lost(api: Box) -> None:
    """The machine of a launch whose answer was dropped is the one that the same token gives again."""
    api.drop_next("RunInstances")
    with pytest.raises(ConnectionClosedError):
        launch(api, ClientToken="intent-1")
    made = [instance["InstanceId"] for instance in instances(api)]

    assert launch(api, ClientToken="intent-1") == made[0]
    assert len(instances(api)) == 1


def test_token_of_another_launch_is_refused(api: Box) -> None:
    """A token that was used for something else is a mistake, as on AWS."""
    launch(api, ClientToken="intent-1")
    error = refusal(api.client("ec2").run_instances, **order(api, InstanceType="g5.xlarge", ClientToken="intent-1"))

    assert code_of(error) == "IdempotentParameterMismatch"


def test_token_counts_in_its_zone_and_ends_with_its_machine(api: Box) -> None:
    """In another zone the same token makes another machine; of a machine that has ended it is refused."""
    first, second = (
        launch(api, ClientToken="intent-1", Placement={"AvailabilityZone": zone})
        for zone in ("us-east-1a", "us-east-1b")
    )
    assert first != second
    api.client("ec2").terminate_instances(InstanceIds=[first])
    api.finish_states()
    placed = order(api, ClientToken="intent-1", Placement={"AvailabilityZone": "us-east-1a"})
    error = refusal(api.client("ec2").run_instances, **placed)
    assert code_of(error) == "IdempotentInstanceTerminated"


def test_token_of_a_launch_that_failed_can_be_used_again(api: Box) -> None:
    """A refused launch leaves its token unused."""
    api.set_quota("L-DB2E81BA", 0)
    refusal(api.client("ec2").run_instances, **order(api, ClientToken="intent-1"))
    api.set_quota("L-DB2E81BA", 4)

    assert launch(api, ClientToken="intent-1")


@pytest.mark.parametrize(("size", "accepted"), [(16384, True), (16385, False)])
def test_user_data_is_limited_to_16_kib(api: Box, size: int, accepted: bool) -> None:
    """The limit counts the bytes before base64."""
    if accepted:
        assert launch(api, UserData="x" * size)
        return
    error = refusal(api.client("ec2").run_instances, **order(api, UserData="x" * size))
    assert code_of(error) == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g99.xlarge"}, "InvalidParameterValue"),
        ({"KeyName": "unknown"}, "InvalidKeyPair.NotFound"),
        ({"Placement": {"AvailabilityZone": "us-east-1e"}}, "Unsupported"),
    ],
)
def test_launch_names_only_what_exists(api: Box, change: dict[str, Any], code: str) -> None:
    """Unknown images, types and keys are refused, and types where they aren't offered."""
    assert code_of(refusal(api.client("ec2").run_instances, **order(api, **change))) == code


@pytest.mark.parametrize(("parameter", "device"), [(DEEP_LEARNING, "/dev/sda1"), (DEBIAN, "/dev/xvda")])
def test_public_parameters_name_images_that_can_be_launched(api: Box, parameter: str, device: str) -> None:
    """An image that a public parameter names exists, with its root device, in any region."""
    ami = image(api, "eu-west-1", parameter)
    described = api.client("ec2", "eu-west-1").describe_images(ImageIds=[ami])["Images"]

    assert [one["RootDeviceName"] for one in described] == [device]
    assert launch(api, "eu-west-1", ImageId=ami)


@pytest.mark.parametrize(
    ("quota", "market", "code"),
    [("L-DB2E81BA", {}, "VcpuLimitExceeded"), ("L-3819A6DF", SPOT, "MaxSpotInstanceCountExceeded")],
)
def test_quota_counts_what_runs_in_its_market(api: Box, quota: str, market: dict[str, Any], code: str) -> None:
    """A quota of one machine's CPUs allows one at a time, and says so when asked."""
    api.set_quota(quota, 4)
    told = api.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=quota)["Quota"]["Value"]
    first = launch(api, **market)
    error = refusal(api.client("ec2").run_instances, **order(api, **market))
    api.client("ec2").terminate_instances(InstanceIds=[first])

    assert (told, code_of(error)) == (4, code)
    assert launch(api, **market)


def test_instances_have_loopback_addresses_of_their_own(api: Box) -> None:
    """Every instance has a public address in 127.0.1.0 to 127.0.9.255, and no two have the same."""
    for _ in range(3):
        launch(api)
    found = [instance["PublicIpAddress"] for instance in instances(api)]

    assert len(set(found)) == 3
    assert all(1 <= int(address.removeprefix("127.0.").split(".")[0]) <= 9 for address in found)


def test_two_boxes_share_no_address(api: Box, tmp_path: Path) -> None:
    """Boxes of different test workers never give out the same address."""
    for _ in range(5):
        launch(api)
    with start_box(tmp_path, machines=False) as other:
        for _ in range(5):
            launch(other)
        theirs = {instance["PublicIpAddress"] for instance in instances(other)}
    ours = {instance["PublicIpAddress"] for instance in instances(api)}

    assert len(ours | theirs) == 10


def test_a_zone_by_its_id_is_taken_as_an_id_only(api: Box) -> None:
    """As a name it is no zone; an id that the region lacks is refused too.

    fact: aws-zone-id-member
    """
    zones = api.client("ec2").describe_availability_zones()["AvailabilityZones"]
    zone = next(zone for zone in zones if zone["ZoneName"] == "us-east-1c")
    launch(api, Placement={"AvailabilityZoneId": zone["ZoneId"]})
    assert [each["Placement"]["AvailabilityZone"] for each in instances(api)] == ["us-east-1c"]
    run = api.client("ec2").run_instances
    for placement in (
        {"AvailabilityZone": zone["ZoneId"]},
        {"AvailabilityZoneId": "use1-az9"},
        {"AvailabilityZone": "us-east-1c", "AvailabilityZoneId": zone["ZoneId"]},
    ):
        assert code_of(refusal(run, **order(api, Placement=placement))).startswith("InvalidParameter")
