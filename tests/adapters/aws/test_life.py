"""The life of a machine at AWS: its launch request, its deadline, and its removal without leftovers."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.job import Resources
from tests.adapters.aws.world import HOME, RUN, AwsWorld, open_to
from tests.cloudbox.aws.box import REGION

M1 = f"{RUN}-m1"
FAR = "eu-west-1"


def test_a_machine_is_closed_encrypted_and_tagged_from_the_start(aws: AwsWorld) -> None:
    """One request sets everything: no later call has to make the machine safe, and a power-off terminates it."""
    aws.provider().create(aws.order(disk_gib=50))
    (instance,) = aws.instances()
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["kedge-run"] == RUN
    assert tags["kedge-machine"] == tags["Name"] == M1
    assert Decimal(tags["kedge-usd-per-hour"]) == Decimal("0.0974")
    life = datetime.fromisoformat(tags["kedge-deadline"]) - datetime.fromisoformat(tags["kedge-created"])
    assert life == timedelta(hours=1)
    assert instance["Placement"]["AvailabilityZone"] == f"{REGION}a"
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"/kedge/kedge-run-{RUN}")
    client = aws.api.client("ec2")
    (disk,) = client.describe_volumes(Filters=[{"Name": "tag:kedge-machine", "Values": [M1]}])["Volumes"]
    assert (disk["VolumeType"], disk["Encrypted"], disk["Size"]) == ("gp3", True, 50)
    assert open_to(aws) == [HOME]
    asked = aws.api.calls("ec2", "RunInstances")[0].params
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"


def test_a_spot_machine_is_requested_once_and_with_the_user_s_price_limit(aws: AwsWorld) -> None:
    """AWS never stops it or launches it again. The request has a price limit only if the user set one."""
    aws.provider().create(aws.order(1, spot=True))
    aws.provider().create(aws.order(2, spot=True, max_usd_per_hour=Decimal("0.05")))
    market = "InstanceMarketOptions."
    free, capped = (
        {key.removeprefix(market): value for key, value in call.params.items() if key.startswith(market)}
        for call in aws.api.calls("ec2", "RunInstances")
    )
    assert free == {
        "MarketType": "spot",
        "SpotOptions.SpotInstanceType": "one-time",
        "SpotOptions.InstanceInterruptionBehavior": "terminate",
    }
    assert capped == {**free, "SpotOptions.MaxPrice": "0.05"}
    assert {instance["InstanceLifecycle"] for instance in aws.instances()} == {"spot"}


def test_a_disk_that_is_too_small_for_the_image_is_as_large_as_the_image(aws: AwsWorld) -> None:
    """AWS refuses a smaller one. The plan prices the same size."""
    aws.provider().create(aws.order(disk_gib=1))
    client = aws.api.client("ec2")
    (disk,) = client.describe_volumes(Filters=[{"Name": "tag:kedge-machine", "Values": [M1]}])["Volumes"]
    (offer, *_) = aws.provider().offers(Resources(instance_type="m5.large", disk_gib=1))
    assert disk["Size"] == offer.disk_gib > 1


def test_a_burstable_machine_never_bills_more_than_its_price(aws: AwsWorld) -> None:
    """Without credits it is slow instead of expensive. Other types have no such setting."""
    aws.provider().create(aws.order(1, instance_type="t3.medium"))
    aws.provider().create(aws.order(2))
    credit = [call.params.get("CreditSpecification.CpuCredits") for call in aws.api.calls("ec2", "RunInstances")]
    assert credit == ["standard", None]


def test_the_plan_says_which_regions_were_left_out(aws: AwsWorld) -> None:
    """Readers should know that a region is closed to the account."""
    aws.api.fail_next("DescribeInstanceTypes", "OptInRequired", times=None, region=FAR)
    laptop = aws.provider()
    offers = laptop.offers(Resources(instance_type="m5.large", regions=(REGION, FAR)))
    assert {offer.region for offer in offers} == {REGION}
    assert laptop.offers_basis.startswith("live")
    assert laptop.offers_basis.endswith(f"; {FAR} is closed to this account (OptInRequired)")


def test_control_plane_calls_are_few(aws: AwsWorld) -> None:
    """A first machine takes 9 calls, another one and a teardown 3 each. Some answers are cached for a day."""
    aws.api.reset_calls()
    aws.provider().create(aws.order(1))
    aws.provider().describe(M1)
    first = aws.actions()
    once_a_day = ("GetCallerIdentity", "GetRole", "DescribeStacks", "DescribeInstanceTypes", "GetParameters")
    observed = Counter([*once_a_day, "DescribeImages"])
    assert first.total() - observed.total() == 9
    assert first > observed
    aws.api.reset_calls()
    aws.provider().create(aws.order(2))
    aws.provider().describe(f"{RUN}-m2")
    assert aws.actions() == Counter(["RunInstances", "CreateSchedule", "DescribeInstances"])
    aws.api.reset_calls()
    aws.provider().destroy(M1)
    assert aws.actions() == Counter(["DescribeInstances", "TerminateInstances", "DeleteSchedule"])


def test_a_replaced_host_key_is_recorded(aws: AwsWorld) -> None:
    """From then on kedge accepts only the new key, and it is no longer provisional."""
    aws.provider().create(aws.order())
    aws.provider().pin(M1, "ssh-ed25519 NEW")
    found = aws.provider().describe(M1)
    assert found is not None
    assert found.address is not None
    assert (found.address.host_key, found.address.provisional) == ("ssh-ed25519 NEW", False)


def test_the_private_host_key_is_nowhere_on_the_laptop(aws: AwsWorld) -> None:
    """The laptop needs only the public half."""
    aws.provider().create(aws.order())
    files = [path for path in aws.folder.rglob("*") if path.is_file()]
    assert any(b"ecdsa-sha2-nistp256" in path.read_bytes() for path in files)
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in files)


def test_a_repeated_order_creates_one_machine(aws: AwsWorld) -> None:
    """The next command has a new host key, but gets the existing machine with the key that it has."""
    first = aws.provider().create(aws.order())
    second = aws.provider().create(aws.order())
    assert (first.provider_id, first.address) == (second.provider_id, second.address)
    assert len(aws.instances()) == 1


def test_a_machine_has_its_deadline_at_aws(aws: AwsWorld) -> None:
    """A one-shot schedule ends it a few minutes after its deadline with the account's role, and deletes itself."""
    machine = aws.provider().create(aws.order())
    schedule = aws.api.client("scheduler").get_schedule(Name=M1)
    at = datetime.strptime(schedule["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
    assert timedelta(0) < at - machine.deadline_at <= timedelta(minutes=10)
    assert schedule["ScheduleExpressionTimezone"] == "UTC"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
    assert json.loads(schedule["Target"]["Input"]) == {"InstanceIds": [machine.provider_id]}
    assert schedule["Target"]["RoleArn"].endswith("/kedge-scheduler")


def test_no_machine_stays_without_its_deadline(aws: AwsWorld) -> None:
    """If AWS refuses the schedule, kedge ends the machine again, and the error says why."""
    aws.api.fail_next("CreateSchedule", "ServiceQuotaExceededException", times=None, status=402)
    with pytest.raises(KedgeError, match="deadline"):
        aws.provider().create(aws.order())
    assert aws.instances() == []
    assert aws.provider().describe(M1) is None


def test_a_destroyed_machine_is_gone_with_its_schedule(aws: AwsWorld) -> None:
    """Destroying it again, or one that never existed, is no error."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    assert aws.provider().describe(M1) is None
    assert list(aws.provider().machines()) == []
    assert aws.schedules() == []
    aws.provider().destroy(M1)
    aws.provider().destroy(f"{RUN}-m7")


def test_a_region_without_a_default_network_is_explained(aws: AwsWorld) -> None:
    """Bootstrap does not create a default network; the error has the command that does."""
    aws.api.fail_next("CreateSecurityGroup", "VPCIdNotSpecified", status=400)
    with pytest.raises(BadRequestError, match="create-default-vpc"):
        aws.provider().create(aws.order())


def test_a_launch_without_a_bootstrap_names_the_command(aws: AwsWorld) -> None:
    """Nothing is created before the boundary and the scheduler's role exist."""
    aws.api.reset()
    with pytest.raises(BadRequestError, match="kedge bootstrap"):
        aws.provider().create(aws.order())
    assert aws.instances() == []


@pytest.mark.parametrize("machine_id", ["", "..", "../state", "a/b", "a b", "-x", "a*"])
def test_an_invalid_machine_id_is_refused(aws: AwsWorld, machine_id: str) -> None:
    """An id becomes part of a path, a tag filter and a schedule's name."""
    with pytest.raises(BadRequestError):
        aws.provider().destroy(machine_id)


def test_a_zone_without_a_default_subnet_is_skipped(aws: AwsWorld) -> None:
    """The refusal rules out every offer in that zone, and none in another."""
    client = aws.api.client("ec2")
    zone = {"Name": "availability-zone", "Values": [f"{REGION}a"]}
    (subnet,) = client.describe_subnets(Filters=[zone, {"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    client.delete_subnet(SubnetId=subnet["SubnetId"])
    (offer,) = aws.provider().offers(Resources(instance_type="m5.large", zone=f"{REGION}a"))
    with pytest.raises(NoCapacityError, match="default subnet") as refusal:
        aws.provider().create(aws.order())
    assert refusal.value.covers(replace(offer, instance_type="m5.xlarge"))
    assert not refusal.value.covers(replace(offer, zone=f"{REGION}b"))
    assert aws.provider().create(aws.order(zone=f"{REGION}b")).provider_id


def test_a_machine_gets_a_public_address_even_if_its_subnet_assigns_none(aws: AwsWorld) -> None:
    """Without it the machine would bill, and could never be reached."""
    aws.provider().create(aws.order())
    (call,) = aws.api.calls("ec2", "RunInstances")
    assert call.params["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    (interface,) = aws.api.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    assert [group["GroupName"] for group in interface["Groups"]] == [f"kedge-{RUN}"]
    assert interface["Attachment"]["DeleteOnTermination"]
