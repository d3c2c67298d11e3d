"""A sweep by a laptop without records: what it finds of kedge in an account, and how to end that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from botocore.stub import Stubber

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account_removal import AccountRemoval, plan_removal
from orchestrator.adapters.providers.aws.record import Records
from orchestrator.adapters.providers.aws.run_resources.leftovers import group_leftovers
from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.job import AtEnd, VolumeSpec
from tests.adapters.aws.world import RUN, AwsWorld, set_up
from tests.cloudbox.aws.leftovers import leftovers

AWAY = "eu-west-1"
M1 = f"{RUN}-m1"
SCRATCH = VolumeSpec(name="scratch", target="data/scratch", size_gib=20, at_end=AtEnd.DELETE)
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=10)


def rent(aws: AwsWorld, *volumes: VolumeSpec, region: str = AWAY) -> None:
    aws.provider().create(aws.order(region=region, zone=f"{region}a", volumes=volumes))


def stranger(aws: AwsWorld) -> AwsWorld:
    """Return another laptop with the same account, and no record of the run."""
    return replace(aws, folder=Path(f"{aws.folder}-elsewhere"))


def test_everything_is_found_in_every_region(aws: AwsWorld) -> None:
    """By tags alone: the machine with its region and deadline, and each other resource of its run."""
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
    """Even in a region that this laptop has no record of. Whether it is gone is checked there, too."""
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


def test_the_schedule_of_a_long_run_id_is_identified_by_its_description(aws: AwsWorld) -> None:
    """A schedule's name is too short for such a machine id."""
    run = "a-run-with-a-name-that-is-much-longer-than-names-at-aws-may-be-1121"
    aws.provider().create(aws.order(id=f"{run}-m1", run_id=run))
    assert {left.run_id for left in stranger(aws).provider().sweep().leftovers} == {run}


def test_other_people_s_resources_are_not_found(aws: AwsWorld) -> None:
    """Resources without a tag of kedge's are ignored."""
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
    """Resources in other regions are still found."""
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
def test_a_kind_of_resource_that_may_not_be_listed_hides_no_other(
    aws: AwsWorld, action: str, hidden: str, may_bill: bool
) -> None:
    """A policy that lacks one call does not affect the rest of the sweep, which reports what it could not list.

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


@pytest.mark.parametrize("how", ["scp", "not-enabled", "opt-in"])
def test_a_closed_region_without_local_records_is_not_expected_to_bill(aws: AwsWorld, how: str) -> None:
    """An organization denies most regions, and EC2 still lists them. Each is named once, without a warning.

    fact: aws-scp-deny; fact: aws-region-not-enabled
    """
    for region in (AWAY, "us-west-2"):
        aws.api.close_region(region, how)
    rent(aws, region="us-east-2")
    found = aws.provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    assert [part.what.partition(" ")[0] for part in found.unseen] == [AWAY, "us-west-2"]
    assert not any(part.may_bill for part in found.unseen)


def test_a_closed_region_with_local_records_may_bill(aws: AwsWorld) -> None:
    """The organization closed it afterwards; the machine there runs on."""
    rent(aws)
    aws.api.close_region(AWAY)
    assert any(AWAY in part.what for part in aws.provider().sweep().unseen if part.may_bill)
    assert not any(part.may_bill for part in stranger(aws).provider().sweep().unseen)


def test_a_denial_that_names_no_organization_may_hide_what_bills(aws: AwsWorld) -> None:
    """It may be the user's own policy, which says nothing about resources of others there."""
    aws.api.close_region(AWAY, "scp-unsaid")
    assert any(part.may_bill for part in aws.provider().sweep().unseen)


def removal(aws: AwsWorld) -> AccountRemoval | None:
    """Plan what `kedge bootstrap --remove` would delete."""
    return plan_removal(AwsSession(), Records(aws.folder / "aws").regions())


def test_regions_that_an_organization_denies_do_not_block_the_removal(aws: AwsWorld) -> None:
    """With the shared run role, kedge looks for machines everywhere. A closed region is reported and counts as empty.

    fact: aws-scp-deny
    """
    aws.api.client("cloudformation").delete_stack(StackName="kedge-account")
    set_up(aws.api, RunRole="true")
    aws.api.close_region(AWAY)
    planned = removal(aws)
    assert planned is not None
    assert [note.partition(" ")[0] for note in planned.notes] == [AWAY]


def test_a_record_in_a_region_that_is_closed_now_blocks_the_removal(aws: AwsWorld) -> None:
    """Its machine may still use the role."""
    aws.api.client("cloudformation").delete_stack(StackName="kedge-account")
    set_up(aws.api, RunRole="true")
    rent(aws)
    with pytest.raises(ConflictError, match="runs still need"):
        removal(aws)
    aws.api.close_region(AWAY)
    with pytest.raises(KedgeError, match="may still have the role") as refused:
        removal(aws)
    assert AWAY in refused.value.why


def test_a_budget_that_may_not_be_read_does_not_block_the_removal(aws: AwsWorld) -> None:
    """Without budgets:ViewBudget the rest is removed, and a note says that an alarm may stay."""
    aws.api.fail_next("DescribeBudget", "AccessDeniedException", status=400, times=None)
    planned = removal(aws)
    assert planned is not None
    assert planned.budget is None
    (note,) = planned.notes
    assert "budget alarm stays" in note


def test_an_instance_with_only_the_run_s_tag_is_found(aws: AwsWorld) -> None:
    """Somebody has removed the machine's tag, and no record here has its id. It still bills."""
    rent(aws)
    (instance,) = aws.instances(AWAY)
    aws.api.client("ec2", AWAY).delete_tags(Resources=[instance["InstanceId"]], Tags=[{"Key": "kedge-machine"}])
    found = stranger(aws).provider().sweep()
    assert found.machines == ()
    assert instance["InstanceId"] in {left.name for left in found.leftovers}


def test_a_schedule_that_fires_during_a_sweep_hides_nothing(aws: AwsWorld) -> None:
    """It is listed, and deleted before it is read."""
    rent(aws)
    aws.api.fail_next("GetSchedule", "ResourceNotFoundException", status=404)
    found = stranger(aws).provider().sweep()
    assert found.unseen == ()
    assert {left.kind for left in found.leftovers} == {"security group", "role"}


def test_a_group_whose_tags_are_not_shown_yet_is_a_leftover_of_no_run(aws: AwsWorld) -> None:
    """EC2 finds it by its tag, and describes it without tags."""
    client = AwsSession().client("ec2", AWAY)
    with Stubber(client) as ec2:
        ec2.add_response("describe_security_groups", {"SecurityGroups": [{"GroupId": "sg-1"}]})
        (left,) = group_leftovers(client)
    assert (left.name, left.run_id) == ("sg-1", "")
