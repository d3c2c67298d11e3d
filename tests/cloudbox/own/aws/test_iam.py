"""IAM in the box, where it is enforced."""

from __future__ import annotations

import json

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import code_of, launch, refusal


def test_enforced_iam_knows_roles_from_operators(api: Box) -> None:
    """A role may do what its policy says and nothing else; the box's own credentials may do everything."""
    trust = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
        }
    )
    allowed = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::kedge/runs/mine/*"}
    iam, s3 = api.client("iam"), api.client("s3")
    role = iam.create_role(RoleName="run", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName="run", PolicyName="own", PolicyDocument=policy)
    s3.create_bucket(Bucket="kedge")
    for key in ("runs/mine/a", "runs/other/a"):
        s3.put_object(Bucket="kedge", Key=key, Body=b"1")
    session = api.client("sts").assume_role(RoleArn=role, RoleSessionName="machine")["Credentials"]
    keys = {
        "aws_access_key_id": session["AccessKeyId"],
        "aws_secret_access_key": session["SecretAccessKey"],
        "aws_session_token": session["SessionToken"],
    }
    api.enforce_iam()

    machine = api.client("s3", **keys)
    assert machine.get_object(Bucket="kedge", Key="runs/mine/a")["Body"].read() == b"1"
    assert code_of(refusal(machine.get_object, Bucket="kedge", Key="runs/other/a")) == "AccessDenied"
    assert code_of(refusal(api.client("ec2", **keys).describe_instances)) == "UnauthorizedOperation"
    assert launch(api)
