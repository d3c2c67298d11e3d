"""Tags that somebody removes or edits in the console: the computer that created an instance knows its id."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import StillBillingError
from orchestrator.core.machine import MachineState
from tests.adapters.aws.world import RUN, AwsWorld

M1 = f"{RUN}-m1"


def take_tags(aws: AwsWorld) -> None:
    """Remove all tags from the run's instance, as a person might."""
    (instance,) = aws.instances()
    keys = [{"Key": tag["Key"]} for tag in instance["Tags"]]
    aws.api.client("ec2").delete_tags(Resources=[instance["InstanceId"]], Tags=keys)
    (instance,) = aws.instances()
    assert not instance.get("Tags")


def test_an_instance_without_tags_is_seen_and_ended(aws: AwsWorld) -> None:
    """Every look-up has its run, its price and its address; none says that it is gone.

    fact: aws-tags-removable
    """
    before = aws.provider().create(aws.order())
    take_tags(aws)
    aws.api.finish_states()
    seen = aws.provider().describe(M1)
    assert seen is not None
    assert (seen.id, seen.run_id, seen.provider_id) == (M1, RUN, before.provider_id)
    assert (seen.state, seen.usd_per_hour) == (MachineState.READY, before.usd_per_hour)
    assert seen.address is not None
    assert [machine.id for machine in aws.provider().machines()] == [M1]
    assert [(each.id, each.run_id) for each in aws.provider().sweep().machines] == [(M1, RUN)]
    with pytest.raises(StillBillingError):
        aws.provider().release(RUN)
    aws.provider().create(aws.order())
    assert len(aws.instances()) == 1
    aws.provider().destroy(M1)
    aws.api.finish_states()
    assert aws.instances() == []
    assert aws.provider().describe(M1) is None
    aws.provider().release(RUN)


def test_a_termination_that_aws_rejects_as_unknown_keeps_the_schedule(aws: AwsWorld) -> None:
    """EC2 may list an instance, and not find it to terminate it. The instance runs on, so its schedule stays.

    fact: aws-eventual-consistency
    """
    aws.provider().create(aws.order())
    aws.api.fail_next("TerminateInstances", "InvalidInstanceID.NotFound", status=400)
    aws.provider().destroy(M1)
    assert len(aws.instances()) == 1
    assert aws.schedules() == [M1]
    aws.provider().destroy(M1)
    aws.api.finish_states()
    assert aws.instances() == []
    assert aws.schedules() == []


def test_a_machine_without_tags_is_seen_beside_an_ended_one_with_its_id(aws: AwsWorld) -> None:
    """The first instance with this machine id ended at its start, and AWS lists it for another hour."""
    first = aws.provider().create(aws.order())
    aws.api.client("ec2").terminate_instances(InstanceIds=[first.provider_id])
    aws.api.finish_states()
    second = aws.provider().create(aws.order())
    take_tags(aws)
    seen = aws.provider().describe(M1)
    assert seen is not None
    assert seen.provider_id == second.provider_id
    assert [machine.provider_id for machine in aws.provider().machines()] == [second.provider_id]
    aws.provider().destroy(M1)
    aws.api.finish_states()
    assert aws.instances() == []


def test_edited_tags_change_neither_the_address_nor_the_deadline(aws: AwsWorld) -> None:
    """This computer's record has what it requested; anybody in the account may edit a tag."""
    before = aws.provider().create(aws.order())
    tags = {"kedge-created": "2026-11-23T00:00:00+00:00", "kedge-deadline": "2027-11-23T00:00:00+00:00"}
    aws.api.client("ec2").create_tags(
        Resources=[before.provider_id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )
    scheduler = aws.api.client("scheduler")
    ends_at = scheduler.get_schedule(Name=M1)["ScheduleExpression"]
    aws.provider().guard(M1)
    assert scheduler.get_schedule(Name=M1)["ScheduleExpression"] == ends_at
    seen = aws.provider().describe(M1)
    assert seen is not None
    assert (seen.address, seen.deadline_at) == (before.address, before.deadline_at)


@pytest.mark.parametrize(
    "edited",
    [
        {"kedge-machine": "a b"},
        {"kedge-machine": ""},
        {"kedge-usd-per-hour": "NaN"},
        {"kedge-created": "2020-01-01T00:00:00+00:00", "kedge-deadline": "9999-12-31T23:59:59+00:00"},
    ],
)
def test_edited_tags_hide_no_instance(aws: AwsWorld, edited: dict[str, str]) -> None:
    """A computer without a record still lists the instance, as a machine or as a leftover with its price."""
    made = aws.provider().create(aws.order())
    tags = [{"Key": key, "Value": value} for key, value in edited.items()]
    aws.api.client("ec2").create_tags(Resources=[made.provider_id], Tags=tags)
    for record in (aws.folder / "aws" / "machines").glob("*.json"):
        record.unlink()
    machines = aws.provider().machines()
    found = aws.provider().sweep()
    assert [each.provider_id for each in found.machines] == [each.provider_id for each in machines]
    assert all(each.deadline_at > each.created_at and each.usd_per_hour >= 0 for each in machines)
    if "kedge-machine" in edited:
        left = next(each for each in found.leftovers if each.name == made.provider_id)
        assert left.usd_per_hour == made.usd_per_hour
    else:
        assert [each.provider_id for each in machines] == [made.provider_id]
