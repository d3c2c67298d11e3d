"""The box refuses what AWS's own model of its APIs doesn't allow, in the words of the service."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import code_of, order, refusal
from tests.cloudbox.aws.model.check import Kind, check
from tests.cloudbox.aws.model.sent import rebuild

APOSTROPHE = "kedge: SSH to run digits-1121-ab2c from its owner's address"
SSH: dict[str, Any] = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
TRUST = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
READ = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}


def test_an_apostrophe_in_a_description_is_refused(api: Box) -> None:
    """AWS allows a few characters only in what describes a security group and its rules; kedge sent another once.

    fact: aws-group-descriptions
    """
    ec2 = api.client("ec2")
    caught = refusal(ec2.create_security_group, GroupName="kedge-a", Description=APOSTROPHE)
    assert code_of(caught) == "InvalidParameterValue"
    assert "GroupDescription" in str(caught)
    group = ec2.create_security_group(GroupName="kedge-a", Description=APOSTROPHE.replace("'", ""))["GroupId"]
    for kind, address in (("IpRanges", {"CidrIp": "203.0.113.7/32"}), ("Ipv6Ranges", {"CidrIpv6": "2001:db8::7/128"})):
        rule = {**SSH, kind: [{**address, "Description": "kedge: its owner's address"}]}
        caught = refusal(ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=[rule])
        assert code_of(caught) == "InvalidParameterValue"
        assert f"IpPermissions.1.{kind}.1.Description" in str(caught)


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"ClientToken": "x" * 65}, "InvalidParameterValue", "ClientToken"),
        ({"ClientToken": "naïve"}, "InvalidParameterValue", "ClientToken"),
        ({"InstanceInitiatedShutdownBehavior": "vanish"}, "InvalidParameterValue", "InstanceInitiatedShutdownBehavior"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue", "HttpPutResponseHopLimit"),
        (
            {"Placement": {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az1"}},
            "InvalidParameterValue",
            "AvailabilityZone",
        ),
        ({"NetworkInterfaces": [{"SubnetId": "subnet-1"}]}, "MissingParameter", "NetworkInterface.1.DeviceIndex"),
        (
            {"SecurityGroupIds": ["sg-1"], "NetworkInterfaces": [{"DeviceIndex": 0}]},
            "InvalidParameterValue",
            "SecurityGroupId",
        ),
        ({"MinCount": None}, "MissingParameter", "MinCount"),
        ({"MinCount": "many"}, "InvalidParameterValue", "MinCount"),
        ({"Colour": "blue"}, "UnknownParameter", "Colour"),
    ],
)
def test_a_launch_is_compared_with_its_model(changes: dict[str, Any], code: str, names: str) -> None:
    """What is required, kinds, lengths, enumerations, what excludes what, and names that the model doesn't have."""
    launch = {"ImageId": "ami-1", "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1, **changes}
    form = _flat({name: value for name, value in launch.items() if value is not None})
    sent = rebuild("ec2", "RunInstances", form, query="", headers={}, body=b"")
    assert sent
    wrong = check(sent)[0]
    kinds = {Kind.UNKNOWN: "UnknownParameter", Kind.MISSING: "MissingParameter", Kind.INVALID: "InvalidParameterValue"}
    assert (kinds[wrong.kind], names in wrong.name) == (code, True), wrong


def test_a_public_address_is_for_the_only_interface(api: Box) -> None:
    """Two network interfaces get none in the launch."""
    two = [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}, {"DeviceIndex": 1}]
    caught = refusal(api.client("ec2").run_instances, **order(api, NetworkInterfaces=two))
    assert code_of(caught) == "InvalidParameterCombination"


def test_a_disk_keeps_to_the_limits_of_its_kind(api: Box) -> None:
    """gp3 has at least 3,000 IOPS; a rate of initialization needs a snapshot; throughput is of gp3 only."""
    ec2 = api.client("ec2")
    for ebs in (
        {"VolumeType": "gp3", "Iops": 100},
        {"VolumeType": "gp2", "Throughput": 500},
        {"VolumeType": "gp3", "Throughput": 5000},
        {"VolumeType": "gp3", "VolumeInitializationRate": 200},
    ):
        disks = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 50, **ebs}}]
        assert code_of(refusal(ec2.run_instances, **order(api, BlockDeviceMappings=disks))) == "InvalidParameterValue"
    assert code_of(refusal(ec2.create_volume, Size=10)) == "MissingParameter"


def test_what_nobody_has_taught_the_box_is_refused(api: Box) -> None:
    """A member whose rules aren't known can't be sent by mistake."""
    ec2 = api.client("ec2")
    caught = refusal(ec2.run_instances, **order(api, HibernationOptions={"Configured": True}))
    assert code_of(caught) == "InvalidParameterValue"
    assert "decided.py" in str(caught)


def test_words_that_nobody_has_decided_are_refused_when_they_are_sent() -> None:
    """Of calls that kedge doesn't make itself, so that no list of them is kept."""
    form = {"InstanceId": "i-0a1b2c3d4e5f60718"}
    sent = rebuild("ec2", "AssociateAddress", form, query="", headers={}, body=b"")
    assert sent
    (wrong, *_) = check(sent)
    assert (wrong.kind, wrong.name) == (Kind.INVALID, "InstanceId")
    assert "nobody has told the box what this means" in wrong.why


def test_the_rules_of_a_group_are_rules(api: Box) -> None:
    """Ports in order, an address that is one, a source, nothing twice."""
    ec2 = api.client("ec2")
    group = ec2.create_security_group(GroupName="kedge-a", Description="kedge")["GroupId"]
    home = {"CidrIp": "203.0.113.7/32"}
    for rules, code in (
        ([{**SSH, "IpRanges": [{"CidrIp": "203.0.113.7/33"}]}], "InvalidParameterValue"),
        ([{**SSH, "ToPort": 21, "IpRanges": [home]}], "InvalidParameterValue"),
        ([{"IpProtocol": "tcp", "IpRanges": [home]}], "InvalidParameterValue"),
        ([{**SSH, "IpProtocol": "ssh", "IpRanges": [home]}], "InvalidParameterValue"),
        ([{**SSH, "IpRanges": [home, home]}], "InvalidParameterValue"),
        ([SSH], "MissingParameter"),
    ):
        caught = refusal(ec2.authorize_security_group_ingress, GroupId=group, IpPermissions=rules)
        assert code_of(caught) == code, rules


def test_iam_names_and_policies_have_a_grammar(api: Box) -> None:
    """Patterns, lengths and limits as IAM says them; a policy that isn't one, or is too long, is refused."""
    iam = api.client("iam")
    trust = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
    caught = refusal(iam.create_role, RoleName="a b", AssumeRolePolicyDocument=trust)
    assert code_of(caught) == "ValidationError"
    assert "regular expression pattern" in str(caught)
    caught = refusal(iam.create_role, RoleName="a" * 65, AssumeRolePolicyDocument=trust)
    assert code_of(caught) == "ValidationError"
    caught = refusal(iam.list_roles, MaxItems=1001)
    assert code_of(caught) == "ValidationError"
    assert "not between 1 and 1000" in str(caught)
    tags = [{"Key": f"t{number}", "Value": ""} for number in range(51)]
    caught = refusal(iam.create_role, RoleName="run", AssumeRolePolicyDocument=trust, Tags=tags)
    assert code_of(caught) == "ValidationError"
    assert "51 items" in str(caught)
    caught = refusal(iam.create_role, RoleName="run", AssumeRolePolicyDocument="{}")
    assert code_of(caught) == "MalformedPolicyDocument"
    iam.create_role(RoleName="run", AssumeRolePolicyDocument=trust)
    for statement, code in (
        ({**READ, "Sid": "own-objects"}, "MalformedPolicyDocument"),
        ({**READ, "Condition": {"StringResembles": {"aws:username": "a"}}}, "MalformedPolicyDocument"),
        ({**READ, "Principal": "*"}, "MalformedPolicyDocument"),
        ({**READ, "Action": "GetObject"}, "MalformedPolicyDocument"),
        ({**READ, "Resource": [f"arn:aws:s3:::kedge/{number:0100}" for number in range(100)]}, "LimitExceeded"),
    ):
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        caught = refusal(iam.put_role_policy, RoleName="run", PolicyName="own", PolicyDocument=document)
        assert code_of(caught) == code, statement


def test_services_that_speak_json_say_validation_exception(api: Box) -> None:
    """The scheduler and Systems Manager have patterns and lengths in their models."""
    target = {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances", "RoleArn": "nobody", "Input": "{}"}
    create = api.client("scheduler").create_schedule
    plain = {"ScheduleExpression": "at(2030-01-01T00:00:00)", "FlexibleTimeWindow": {"Mode": "OFF"}}
    assert code_of(refusal(create, Name="a", Target=target, **plain)) == "ValidationException"
    role = {**target, "RoleArn": "arn:aws:iam::123456789012:role/kedge"}
    assert code_of(refusal(create, Name="a b", Target=role, **plain)) == "ValidationException"
    assert code_of(refusal(create, Name="a", Target={**role, "Input": "{"}, **plain)) == "ValidationException"
    assert code_of(refusal(api.client("ssm").get_parameter, Name="a" * 3000)) == "ValidationException"


def test_whoever_signs_requests_by_hand_is_checked_too(api: Box) -> None:
    """The check looks at the wire: what boto3 would never send is refused as well."""
    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    unchecked = Config(parameter_validation=False, retries={"total_max_attempts": 1})
    ec2: Any = session.client("ec2", endpoint_url=api.endpoint, config=unchecked)
    with pytest.raises(ClientError, match="MissingParameter"):
        ec2.create_security_group(GroupName="kedge-a")
    signed = "AWS4-HMAC-SHA256 Credential=a/20300101/us-east-1/{}/aws4_request, SignedHeaders=host, Signature=0"
    api.client("s3").create_bucket(Bucket="kedge")
    for service, path, said in (
        ("ec2", "/?Action=DescribeInstances&Version=2016-11-15&Colour=blue", "UnknownParameter"),
        ("s3", "/kedge?list-type=2&max-keys=many", "InvalidArgument"),
        ("s3", "/kedge?list-type=2&colour=blue", "InvalidRequest"),
    ):
        request = urllib.request.Request(api.endpoint + path, headers={"Authorization": signed.format(service)})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        assert said in caught.value.read().decode()


def test_every_other_moto_of_the_tests_is_as_strict(moto: str) -> None:
    """Those that serve no machines and no prices: what the box refuses, they refuse."""
    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    ec2 = session.client("ec2", endpoint_url=moto)
    with pytest.raises(ClientError, match="GroupDescription"):
        ec2.create_security_group(GroupName="kedge-a", Description=APOSTROPHE)


def _flat(params: Any, name: str = "") -> dict[str, str]:
    """Write parameters as EC2's protocol does, where its names are those of the model or lack the plural."""
    singular = {"SecurityGroupIds": "SecurityGroupId", "NetworkInterfaces": "NetworkInterface"}
    if isinstance(params, dict):
        items = [(f"{name}.{singular.get(key, key)}".lstrip("."), value) for key, value in params.items()]
    elif isinstance(params, list):
        items = [(f"{name}.{number}", value) for number, value in enumerate(params, 1)]
    else:
        return {name: str(params)}
    return {key: text for each, value in items for key, text in _flat(value, each).items()}
