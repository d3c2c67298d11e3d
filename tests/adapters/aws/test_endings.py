"""Who ended a machine, according to the state reason and time that AWS reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pytest

from orchestrator.adapters.cloud.model import Instance
from orchestrator.adapters.providers.aws.instances.end_reasons import explain_end
from orchestrator.adapters.providers.aws.instances.find_instances import parse_instance
from orchestrator.adapters.providers.aws.refusal_table import FAILED_STARTS
from orchestrator.core.machine import EndedBy
from orchestrator.core.policy.recovery import is_loss
from tests.adapters.aws.world import RUN, AwsWorld
from tests.cloudbox.aws.box import REGION

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

M1 = f"{RUN}-m1"
DEADLINE = datetime(2026, 11, 21, 18, tzinfo=UTC)


def described(code: str, *, transition: str = "", state: str = "terminated") -> Instance:
    """Read an instance as DescribeInstances describes it."""
    reason = {"Code": code, "Message": f"{code}: in AWS's words"}
    answer = {
        "InstanceId": "i-0123456789abcdef0",
        "State": {"Name": state},
        "StateTransitionReason": transition,
        "StateReason": reason,
        "LaunchTime": DEADLINE - timedelta(hours=1),
    }
    return parse_instance(cast("InstanceTypeDef", answer), REGION)


@pytest.mark.parametrize(
    ("code", "by"),
    [
        ("Server.SpotInstanceTermination", EndedBy.PROVIDER),
        ("Server.SpotInstanceShutdown", EndedBy.PROVIDER),
        ("Server.InternalError", EndedBy.PROVIDER),
        ("Server.ScheduledStop", EndedBy.PROVIDER),
        ("Client.InstanceInitiatedShutdown", EndedBy.ITSELF),
        ("Client.UserInitiatedShutdown", EndedBy.SOMEBODY),
        ("Client.InstanceTerminated", EndedBy.SOMEBODY),
    ],
)
@pytest.mark.parametrize("state", ["shutting-down", "terminated", "stopped"])
def test_each_reason_names_who_ended_the_machine(code: str, by: EndedBy, state: str) -> None:
    """The reason is known as soon as the machine shuts down."""
    end = explain_end(described(code, state=state), DEADLINE, DEADLINE - timedelta(minutes=9))
    assert end is not None
    assert (end.by, end.says) == (by, f"{code}: in AWS's words")


@pytest.mark.parametrize("code", FAILED_STARTS)
def test_a_state_reason_of_the_first_minutes_means_a_failed_start(code: str) -> None:
    """The same code later means that a running machine ended. A failed start is recovered like a lost machine.

    fact: aws-state-reasons
    """
    launched = DEADLINE - timedelta(hours=1)
    early = explain_end(described(code), DEADLINE, launched + timedelta(minutes=1))
    late = explain_end(described(code), DEADLINE, launched + timedelta(minutes=40))
    assert early is not None
    assert late is not None
    assert early.by is EndedBy.START
    assert late.by is (EndedBy.PROVIDER if code.startswith("Server.") else EndedBy.ITSELF)
    assert is_loss(None, early)


@pytest.mark.parametrize(
    ("transition", "by"),
    [
        ("User initiated (2026-11-21 17:59:59 GMT)", EndedBy.SOMEBODY),
        ("User initiated (2026-11-21 18:05:00 GMT)", EndedBy.DEADLINE),
        ("", EndedBy.DEADLINE),
    ],
    ids=["before the deadline", "after it", "no time given, deadline passed"],
)
def test_an_end_by_the_schedule_is_recognised_by_its_time(transition: str, by: EndedBy) -> None:
    """The schedule makes the same call as a user, but only after the deadline."""
    end = explain_end(
        described("Client.UserInitiatedShutdown", transition=transition), DEADLINE, DEADLINE + timedelta(hours=1)
    )
    assert end is not None
    assert end.by is by


def test_a_machine_that_runs_has_not_ended(aws: AwsWorld) -> None:
    """Nor has a machine that never existed. A reason that is left from an earlier stop is ignored."""
    aws.provider().create(aws.order())
    assert aws.provider().why_ended(M1) is None
    assert aws.provider().why_ended(f"{RUN}-m7") is None
    assert explain_end(described("Client.UserInitiatedShutdown", state="running"), DEADLINE, DEADLINE) is None


def test_a_machine_ended_in_the_console_is_reported_as_such(aws: AwsWorld) -> None:
    """Even without tags: AWS removes them from a terminated instance before it forgets the instance."""
    machine = aws.provider().create(aws.order())
    client = aws.api.client("ec2")
    client.terminate_instances(InstanceIds=[machine.provider_id])
    client.delete_tags(Resources=[machine.provider_id])
    end = aws.provider().why_ended(M1)
    assert end is not None
    assert (end.by, end.says) == (EndedBy.SOMEBODY, "Client.UserInitiatedShutdown: User initiated shutdown")


def test_a_reclaimed_machine_is_reported_as_such(aws: AwsWorld) -> None:
    """Whether this laptop has a record of it or another one created it."""
    machine = aws.provider().create(aws.order(spot=True))
    aws.api.reclaim(machine.provider_id, notice_seconds=None)
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    for end in (aws.provider().why_ended(M1), other.provider().why_ended(M1)):
        assert end is not None
        assert end.by is EndedBy.PROVIDER
