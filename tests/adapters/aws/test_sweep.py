"""What is found of kedge's in an account by a laptop that knows nothing of it, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.job import AtEnd, VolumeSpec
from tests.adapters.aws.world import RUN, AwsWorld
from tests.cloudbox.leftovers import leftovers

AWAY = "eu-west-1"
M1 = f"{RUN}-m1"
SCRATCH = VolumeSpec(name="scratch", target="data/scratch", size_gib=20, at_end=AtEnd.DELETE)
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=10)


def rent(aws: AwsWorld, *volumes: VolumeSpec) -> None:
    aws.provider().create(aws.order(region=AWAY, zone=f"{AWAY}a", volumes=volumes))


def stranger(aws: AwsWorld) -> AwsWorld:
    """Return another laptop with the same account, which has never heard of the run."""
    return replace(aws, folder=Path(f"{aws.folder}-elsewhere"))


def test_everything_is_found_in_every_region(aws: AwsWorld) -> None:
    """By tags alone: the machine with its region and deadline, and each thing that its run has besides."""
    rent(aws, SCRATCH, SCANS)
    found = stranger(aws).provider().sweep()
    (machine,) = found.machines
    assert (machine.id, machine.run_id, machine.region) == (M1, RUN, AWAY)
    assert {left.run_id for left in found.leftovers} == {RUN}
    there = {(left.kind, left.region, left.kept, left.usd_per_hour > 0) for left in found.leftovers}
    assert there == {
        ("data volume", AWAY, False, True),
        ("data volume", AWAY, True, True),
        ("security group", AWAY, False, False),
        ("schedule", AWAY, False, False),
        ("role", "", False, False),
    }
    assert found.unseen == ()


def test_what_was_found_can_be_ended(aws: AwsWorld) -> None:
    """In a region that this laptop has no record of; gone is said of that region, too."""
    rent(aws, SCRATCH)
    provider = stranger(aws).provider()
    assert provider.describe(M1) is None
    provider.sweep()
    assert provider.describe(M1) is not None
    provider.destroy(M1)
    assert provider.describe(M1) is None
    provider.release(RUN)
    assert leftovers(aws.api, AWAY) == []
    assert aws.api.billing() == []
    assert provider.sweep().leftovers == ()


def test_a_long_run_s_schedule_is_told_by_its_description(aws: AwsWorld) -> None:
    """A schedule's name is too short for the id of its machine."""
    run = "a-run-with-a-name-that-is-much-longer-than-names-at-aws-may-be-1121"
    aws.provider().create(aws.order(id=f"{run}-m1", run_id=run))
    assert {left.run_id for left in stranger(aws).provider().sweep().leftovers} == {run}


def test_other_people_s_things_are_not_found(aws: AwsWorld) -> None:
    """What carries no tag of kedge's is nobody's here."""
    ec2 = aws.api.client("ec2")
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)
    ec2.create_security_group(GroupName="theirs", Description="theirs")
    role = aws.api.client("iam").get_role(RoleName="kedge-scheduler")["Role"]["Arn"]
    aws.api.client("scheduler").create_schedule(
        Name="theirs-m1",
        ScheduleExpression="rate(1 days)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances", "RoleArn": role},
    )
    found = aws.provider().sweep()
    assert (found.machines, found.leftovers) == ((), ())


def test_a_region_that_does_not_answer_is_named(aws: AwsWorld) -> None:
    """What is elsewhere is found all the same."""
    rent(aws)
    aws.api.fail_next("*", "UnauthorizedOperation", times=None, region="us-west-2", service="ec2")
    found = aws.provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    assert found.unseen
    assert all("us-west-2" in part.what for part in found.unseen)


@pytest.mark.parametrize(
    ("action", "hidden", "may_bill"),
    [
        ("DescribeInstances", "machine", True),
        ("DescribeVolumes", "data volume", True),
        ("DescribeSecurityGroups", "security group", False),
        ("ListSchedules", "schedule", False),
        ("ListRoles", "role", False),
    ],
)
def test_a_kind_of_thing_that_may_not_be_listed_hides_no_other(
    aws: AwsWorld, action: str, hidden: str, may_bill: bool
) -> None:
    """A policy that lacks one call leaves the rest of the sweep as it is; what wasn't seen is said.

    fact: aws-each-listing-is-permitted-alone
    """
    rent(aws, SCRATCH)
    aws.api.fail_next(action, "AccessDenied", status=403, times=None)
    found = stranger(aws).provider().sweep()
    seen = {left.kind for left in found.leftovers} | {"machine" for _ in found.machines}
    assert seen == {"machine", "data volume", "security group", "schedule", "role"} - {hidden}
    assert found.unseen
    assert {part.may_bill for part in found.unseen} == {may_bill}
    assert all(action in part.what for part in found.unseen)
