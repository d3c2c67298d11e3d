"""A launch in a region that turns out to be closed: kedge tries the next one, and leaves nothing behind."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.job import VolumeSpec
from tests.adapters.aws.world import AwsWorld
from tests.cloudbox.aws.box import REGION
from tests.cloudbox.aws.launches import instances


@pytest.mark.parametrize("how", ["scp", "scp-launches", "not-enabled", "opt-in"])
def test_a_launch_that_a_region_denies_goes_on_to_the_next(aws: AwsWorld, how: str) -> None:
    """Whichever call is denied first, the refusal rules out this region and no other.

    fact: aws-scp-deny; fact: aws-region-not-enabled
    """
    aws.api.close_region(REGION, how)
    provider, order = aws.provider(), aws.order()
    with pytest.raises(NoCapacityError) as refused:
        provider.create(order)
    assert refused.value.covers(aws.order(zone=f"{REGION}f", instance_type="g5.xlarge").offer)
    elsewhere = aws.order(region="us-west-2", zone="us-west-2a")
    assert not refused.value.covers(elsewhere.offer)
    assert provider.create(elsewhere).region == "us-west-2"


@pytest.mark.parametrize(
    ("call", "denied"),
    [("GetRole", "iam:GetRole"), ("CreateRole", "iam:CreateRole"), ("RunInstances", "iam:PassRole")],
)
def test_an_iam_call_that_the_organization_denies_rules_out_every_region(aws: AwsWorld, call: str, denied: str) -> None:
    """No other region is tried: the error names the call to allow.

    fact: aws-scp-deny
    """
    said = f"User is not authorized to perform: {denied} with an explicit deny in a service control policy"
    code = "UnauthorizedOperation" if call == "RunInstances" else "AccessDenied"
    aws.api.fail_next(call, code, message=said, status=403)
    with pytest.raises(KedgeError) as refused:
        aws.provider().create(aws.order())
    assert not isinstance(refused.value, NoCapacityError)
    assert denied in refused.value.why


def test_a_zone_id_is_sent_as_an_id(aws: AwsWorld) -> None:
    """For the machine and for its new volume. The same order finds both again.

    fact: aws-zone-id-member
    """
    ec2 = aws.api.client("ec2")
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    (zone_id,) = (zone["ZoneId"] for zone in zones if zone["ZoneName"] == "us-east-1c")
    volume = VolumeSpec(name="imagenet", target="data", size_gib=5)
    aws.provider().create(aws.order(zone=zone_id, volumes=(volume,)))
    (run,) = aws.api.calls("ec2", "RunInstances")
    assert run.params["Placement.AvailabilityZoneId"] == zone_id
    assert "Placement.AvailabilityZone" not in run.params
    assert [each["Placement"]["AvailabilityZone"] for each in instances(aws.api)] == ["us-east-1c"]
    assert [each["AvailabilityZone"] for each in ec2.describe_volumes()["Volumes"] if each["Size"] == 5] == [
        "us-east-1c"
    ]
