"""Faults happen as ordered, calls are counted, and a reset leaves nothing."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import SPOT, code_of, instances, launch, order, refusal


def test_call_dropped_before_its_effect_has_none(api: Box) -> None:
    """A lost call looks the same to the caller as a lost answer, but nothing was made."""
    api.drop_next("RunInstances", before_effect=True)
    with pytest.raises(ConnectionClosedError):
        launch(api)

    assert instances(api) == []


def test_fault_hits_only_what_it_names(api: Box) -> None:
    """An ordered error comes as often as ordered, for the type, market and zone that it names."""
    api.fail_next(
        "RunInstances",
        "InsufficientInstanceCapacity",
        times=2,
        instance_type="g5.xlarge",
        zone="us-east-1a",
        market="spot",
    )
    wanted = order(api, InstanceType="g5.xlarge", Placement={"AvailabilityZone": "us-east-1a"}, **SPOT)
    errors = [refusal(api.client("ec2").run_instances, **wanted) for _ in range(2)]
    status = errors[0].response["ResponseMetadata"]["HTTPStatusCode"]

    assert {code_of(error) for error in errors} == {"InsufficientInstanceCapacity"}
    assert status == 500
    assert launch(api)
    assert launch(api, InstanceType="g5.xlarge", Placement={"AvailabilityZone": "us-east-1b"}, **SPOT)
    assert launch(api, **wanted)


@pytest.mark.parametrize(
    ("service", "action", "call"),
    [
        ("s3", "ListBuckets", lambda client: client.list_buckets()),
        ("iam", "GetUser", lambda client: client.get_user(UserName="x")),
        ("ssm", "GetParameter", lambda client: client.get_parameter(Name="x")),
        ("scheduler", "DeleteSchedule", lambda client: client.delete_schedule(Name="x")),
        ("pricing", "GetProducts", lambda client: client.get_products(ServiceCode="AmazonEC2")),
    ],
)
def test_every_protocol_has_its_form_of_error(api: Box, service: str, action: str, call: Any) -> None:
    """boto3 reads the ordered code, message and status from each kind of service."""
    api.fail_next(action, "ThrottlingException", status=429, message="slower <please>")
    error = refusal(call, client=api.client(service))

    assert code_of(error) == "ThrottlingException"
    assert error.response["Error"]["Message"] == "slower <please>"
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 429


def test_delay_is_felt(api: Box) -> None:
    """A delayed call takes at least that long."""
    api.delay_next("DescribeInstances", 0.5)
    started = time.monotonic()
    instances(api)

    assert time.monotonic() - started >= 0.5


def test_calls_are_counted_with_what_they_asked_for(api: Box) -> None:
    """Tests can count calls by service and action, retries too, and read their parameters but no user-data."""
    api.client("s3").create_bucket(Bucket="kedge")
    api.client("s3").put_object(Bucket="kedge", Key="runs/a/b", Body=b"1")
    wanted = order(api, UserData="secret")
    api.reset_calls()
    api.fail_next("RunInstances", "RequestLimitExceeded")
    retrying = boto3.client("ec2", **_as_operator(api), config=Config(retries={"total_max_attempts": 2}))
    retrying.run_instances(**wanted)
    api.client("s3").get_object(Bucket="kedge", Key="runs/a/b")

    seen = [(call.service, call.action, call.status) for call in api.calls()]
    assert seen == [("ec2", "RunInstances", 503), ("ec2", "RunInstances", 200), ("s3", "GetObject", 200)]
    first, _, last = api.calls()
    assert (first.fault, first.params["InstanceType"]) == ("RequestLimitExceeded", "g4dn.xlarge")
    assert "UserData" not in first.params
    assert last.params == {"Bucket": "kedge", "Key": "runs/a/b"}


def test_reset_leaves_nothing(api: Box) -> None:
    """After a reset no machine, call, fault, quota or dollar of the test before is left."""
    launch(api)
    api.fail_next("DescribeInstances", "InternalError", times=None)
    api.set_quota("L-DB2E81BA", 0)
    api.reset()

    assert api.calls() == []
    assert instances(api) == []
    assert api.meter().usd == 0
    assert launch(api)


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


def _as_operator(box: Box) -> dict[str, Any]:
    return {
        "region_name": "us-east-1",
        "endpoint_url": box.endpoint,
        "aws_access_key_id": box.env["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": box.env["AWS_SECRET_ACCESS_KEY"],
    }
