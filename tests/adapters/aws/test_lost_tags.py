"""Tags that a person takes away in the console: an instance of this computer's is known by its id."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import StillBillingError
from orchestrator.core.machine import MachineState
from tests.adapters.aws.world import RUN, AwsWorld

M1 = f"{RUN}-m1"


def take_tags(aws: AwsWorld) -> None:
    """Take all tags from the run's instance, as a person would."""
    (instance,) = aws.instances()
    keys = [{"Key": tag["Key"]} for tag in instance["Tags"]]
    aws.api.client("ec2").delete_tags(Resources=[instance["InstanceId"]], Tags=keys)
    (instance,) = aws.instances()
    assert not instance.get("Tags")


def test_an_instance_without_tags_is_seen_and_ended(aws: AwsWorld) -> None:
    """Whatever looks at it knows whose it is, what it costs and how to reach it; nothing says that it is gone.

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


def test_an_end_that_aws_knows_nothing_of_keeps_the_schedule(aws: AwsWorld) -> None:
    """EC2 may list an instance and not know it when it is to end: it runs on, and so its deadline stays.

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
