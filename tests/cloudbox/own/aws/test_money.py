"""The meter counts what exists, by the second, and machines end the way EC2's do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import SPOT, code_of, instances, launch, refusal
from tests.support.waiting import wait_until


def test_meter_counts_machines_and_volumes_by_the_second(api: Box) -> None:
    """A spot machine costs its zone's price at launch until it is terminated; its disk and its address likewise."""
    api.set_spot_price("g4dn.xlarge", "us-east-1b", "36")
    instance = launch(api, Placement={"AvailabilityZone": "us-east-1b"}, **SPOT)
    api.set_spot_price("g4dn.xlarge", "us-east-1b", "72")
    wait_until(lambda: api.meter().usd > Decimal("0.002"))
    billing = {bill.kind: bill for bill in api.billing()}
    api.client("ec2").terminate_instances(InstanceIds=[instance])
    metered = api.meter()

    assert billing["instance"].usd_per_hour == 36
    assert billing["volume"].usd_per_hour == pytest.approx(Decimal("0.08") * 50 / 730)
    assert api.billing() == []
    assert billing["address"].usd_per_hour == Decimal("0.005")
    machine = next(bill for bill in metered.bills if bill.kind == "instance")
    assert machine.until
    assert float(machine.usd) == pytest.approx((machine.until - machine.since) / 100, rel=1e-4)
    assert {bill.kind for bill in metered.bills} == {"instance", "volume", "address"}
    assert metered.usd == pytest.approx(sum(bill.usd for bill in metered.bills), abs=Decimal("1e-8"))
    assert api.meter().usd == metered.usd


def test_stopped_machine_bills_its_volumes_on(api: Box) -> None:
    """A stop ends the machine's price but not its disk's, nor that of a volume of its own."""
    instance = launch(api)
    api.client("ec2").create_volume(AvailabilityZone="us-east-1a", Size=10, VolumeType="gp3")
    api.client("ec2").stop_instances(InstanceIds=[instance])

    assert sorted(bill.what for bill in api.billing()) == ["gp3 10 GB", "gp3 50 GB"]


def test_reclaimed_spot_machine_says_why(api: Box) -> None:
    """A spot machine is terminated after its notice, by AWS."""
    instance = launch(api, **SPOT)
    api.reclaim(instance, notice_seconds=5)
    assert instances(api)[0]["State"]["Name"] == "running"

    wait_until(lambda: instances(api)[0]["State"]["Name"] == "terminated")
    assert instances(api)[0]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert api.billing() == []


def test_reclaim_without_notice_is_at_once(api: Box) -> None:
    """Without a notice the machine is gone when the order is."""
    instance = launch(api, **SPOT)
    api.reclaim(instance, notice_seconds=None)

    assert instances(api)[0]["State"]["Name"] == "terminated"


def test_on_demand_machine_is_never_reclaimed(api: Box) -> None:
    """Only spot machines are taken back."""
    instance = launch(api)
    with pytest.raises(ValueError, match="no spot instance"):
        api.reclaim(instance)


def test_one_shot_schedule_terminates_and_is_gone(api: Box) -> None:
    """A deadline's schedule ends its machine and removes itself."""
    instance = launch(api)
    _schedule(api, instance, _scheduler_role(api))

    wait_until(lambda: instances(api)[0]["State"]["Name"] == "terminated")
    wait_until(lambda: not api.client("scheduler").list_schedules()["Schedules"])


def test_schedule_needs_a_role_that_the_scheduler_can_use(api: Box) -> None:
    """A role that trusts another service is refused when the schedule is made."""
    role = _scheduler_role(api, "ec2.amazonaws.com")
    error = refusal(_schedule, box=api, instance="i-0", role=role)

    assert code_of(error) == "ValidationException"


def _scheduler_role(box: Box, service: str = "scheduler.amazonaws.com") -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = box.client("iam").create_role(RoleName="scheduler", AssumeRolePolicyDocument=document)
    return str(role["Role"]["Arn"])


def _schedule(box: Box, instance: str, role: str) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=1)
    box.client("scheduler").create_schedule(
        Name="deadline",
        ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances",
            "RoleArn": role,
            "Input": json.dumps({"InstanceIds": [instance]}),
        },
    )
