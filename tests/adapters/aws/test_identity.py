"""What a run's machines may do at AWS: use their run's objects, read its job's data sets, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest
from botocore.exceptions import ClientError

from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.adapters.providers.aws.run_resources.policy import data_sets, named_buckets, write_policy
from orchestrator.adapters.sync.data.push import data_name
from orchestrator.core.job import DataMount
from tests.adapters.aws.world import RUN, AwsWorld, set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers

BUCKET = "kedge-test"
OTHER = "digits-1121-ab2cx"
SCANS = DataMount(source="/home/ada/scans", target="scans")
DATA = data_name(SCANS.source, SCANS.target)

MAY = [
    ("s3:GetObject", f"{BUCKET}/runs/{RUN}/manifest.json", {}),
    ("s3:PutObject", f"{BUCKET}/runs/{RUN}/blobs/0a", {}),
    ("s3:DeleteObject", f"{BUCKET}/runs/{RUN}/blobs/0a", {}),
    ("s3:AbortMultipartUpload", f"{BUCKET}/runs/{RUN}/blobs/0a", {}),
    ("s3:ListMultipartUploadParts", f"{BUCKET}/runs/{RUN}/blobs/0a", {}),
    ("s3:GetObject", f"{BUCKET}/data/{DATA}/index.json.gz", {}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": f"data/{DATA}/shards/"}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": f"runs/{RUN}/blobs/"}),
]
MAY_NOT = [
    ("s3:GetObject", f"{BUCKET}/runs/{OTHER}/manifest.json", {}),
    ("s3:PutObject", f"{BUCKET}/runs/{OTHER}/manifest.json", {}),
    ("s3:PutObject", f"{BUCKET}/data/{DATA}/index.json.gz", {}),
    ("s3:DeleteObject", f"{BUCKET}/data/{DATA}/index.json.gz", {}),
    ("s3:GetObject", f"{BUCKET}/data/{DATA}x/index.json.gz", {}),
    ("s3:GetObject", f"{BUCKET}/data/maps/index.json.gz", {}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": "data/"}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": "data/maps/"}),
    ("s3:GetObject", f"someone-else/runs/{RUN}/manifest.json", {}),
    ("s3:ListBucket", BUCKET, {}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": ""}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": "runs/"}),
    ("s3:ListBucket", BUCKET, {"s3:prefix": f"runs/{OTHER}/"}),
    ("s3:DeleteBucket", BUCKET, {}),
    ("s3:PutBucketPolicy", BUCKET, {}),
    ("s3:ListAllMyBuckets", "*", {}),
    ("ec2:RunInstances", "*", {}),
    ("ec2:TerminateInstances", "*", {}),
    ("ec2:DescribeInstances", "*", {}),
    ("iam:CreateRole", "*", {}),
    ("iam:PassRole", "*", {}),
    ("sts:AssumeRole", "*", {}),
]


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def allows(document: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Evaluate a policy of Allow statements as IAM does: actions, resources and StringLike."""
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        conditions = statement.get("Condition", {})
        assert set(conditions) <= {"StringLike"}
        if (
            any(fnmatchcase(action, pattern) for pattern in listed(statement["Action"]))
            and any(fnmatchcase(f"arn:aws:s3:::{resource}", pattern) for pattern in listed(statement["Resource"]))
            and all(
                key in context and any(fnmatchcase(context[key], pattern) for pattern in listed(patterns))
                for key, patterns in conditions.get("StringLike", {}).items()
            )
        ):
            return True
    return False


@pytest.mark.parametrize(("action", "resource", "context"), MAY)
def test_a_machine_may_use_its_own_run(action: str, resource: str, context: dict[str, str]) -> None:
    """What the agent does: upload, restore, download the job's data sets."""
    assert allows(write_policy(BUCKET, RUN, [DATA]), action, resource, context)


@pytest.mark.parametrize(("action", "resource", "context"), MAY_NOT)
def test_a_machine_may_do_nothing_else(action: str, resource: str, context: dict[str, str]) -> None:
    """Not even with a run or a data set whose name starts with its own name."""
    assert not allows(write_policy(BUCKET, RUN, [DATA]), action, resource, context)


def test_a_job_without_data_sets_reads_none() -> None:
    """It may read neither the objects nor their names."""
    assert "data/" not in json.dumps(write_policy(BUCKET, RUN))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (f"s3://{BUCKET}/data/maps/", "maps"),
        (f"s3://{BUCKET}/data/maps/europe/north.tif?region=eu-north-1", "maps"),
        (f"s3://{BUCKET}/data/", None),
        (f"s3://{BUCKET}/data/*/", None),
        (f"s3://{BUCKET}/data/ma?s/", None),
        (f"s3://{BUCKET}/runs/{OTHER}/", None),
        (f"s3://{BUCKET}/runs/{OTHER}/data/maps/", None),
        ("s3://someone-else/data/maps/", None),
        (f"https://{BUCKET}/data/maps/", None),
    ],
)
def test_a_url_in_the_bucket_names_one_data_set(source: str, name: str | None) -> None:
    """Never more than one: a pattern or a path in a run names none."""
    assert data_sets([DataMount(source=source, target="maps")], BUCKET) == ([name] if name else [])


def test_a_run_reads_another_bucket_if_its_job_and_the_account_name_it() -> None:
    """It reads every object of the bucket, and writes none."""
    mounts = [
        DataMount(source=source, target="x")
        for source in ("s3://mine/maps/", "s3://stranger/a", "https://other/x", "/home/me/other")
    ]
    assert named_buckets(mounts, ("mine", "other")) == ["mine"]
    policy = write_policy(BUCKET, RUN, others=["mine"])
    assert allows(policy, "s3:GetObject", "mine/maps/a", {})
    assert allows(policy, "s3:ListBucket", "mine", {"s3:prefix": "maps/"})
    assert not allows(policy, "s3:PutObject", "mine/maps/a", {})
    assert not allows(policy, "s3:GetObject", "other/a", {})


def test_a_run_s_role_reads_another_bucket_that_its_job_names(api: Box, aws: AwsWorld) -> None:
    """`bootstrap --read-bucket` allows the bucket, and the order says that the job names it."""
    api.client("cloudformation").delete_stack(StackName="kedge-account")
    set_up(api, ReadBuckets="mine,other")
    aws.provider().create(aws.order(data=(DataMount(source="s3://mine/maps/", target="maps"),)))
    iam, name = api.client("iam"), role_name(RUN)
    (policy,) = iam.list_role_policies(RoleName=name)["PolicyNames"]
    written = iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    assert json.dumps(written, sort_keys=True) == json.dumps(write_policy(BUCKET, RUN, others=["mine"]), sort_keys=True)


def test_a_role_has_the_boundary_and_only_ec2_can_assume_it(aws: AwsWorld) -> None:
    """Whatever policy somebody attaches later, the account's boundary still limits the role."""
    aws.provider().create(aws.order(data=(SCANS,)))
    iam = aws.api.client("iam")
    role = iam.get_role(RoleName=role_name(RUN))["Role"]
    assert role["PermissionsBoundary"]["PermissionsBoundaryArn"].endswith(":policy/kedge-run-boundary")
    assert role["Path"] == "/kedge/"
    assert iam.get_instance_profile(InstanceProfileName=role_name(RUN))["InstanceProfile"]["Path"] == "/kedge/"
    assert {"Key": "kedge-run", "Value": RUN} in role["Tags"]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}
    (name,) = iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
    written = iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
    assert json.dumps(written, sort_keys=True) == json.dumps(write_policy(BUCKET, RUN, [DATA]), sort_keys=True)
    assert iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"] == []


def test_everything_that_a_run_may_do_is_within_the_boundary(aws: AwsWorld) -> None:
    """Otherwise the boundary would silently deny it."""
    iam = aws.api.client("iam")
    (policy,) = [each for each in iam.list_policies(Scope="Local")["Policies"] if "boundary" in each["PolicyName"]]
    version = iam.get_policy_version(PolicyArn=policy["Arn"], VersionId=policy["DefaultVersionId"])
    boundary = version["PolicyVersion"]["Document"]
    assert all(allows(boundary, *each) for each in MAY)


@pytest.fixture
def as_machine(aws: AwsWorld) -> Iterator[dict[str, str]]:
    """Credentials of a run's role, in an account that enforces IAM policies."""
    aws.provider().create(aws.order(data=(SCANS,)))
    role = aws.api.client("iam").get_role(RoleName=role_name(RUN))["Role"]
    said = aws.api.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="machine")["Credentials"]
    s3 = aws.api.client("s3")
    for run in (RUN, OTHER):
        s3.put_object(Bucket=BUCKET, Key=f"runs/{run}/manifest.json", Body=b"{}")
    for name in (DATA, "maps"):
        s3.put_object(Bucket=BUCKET, Key=f"data/{name}/index.json.gz", Body=b"{}")
    aws.api.enforce_iam()
    yield {
        "aws_access_key_id": said["AccessKeyId"],
        "aws_secret_access_key": said["SecretAccessKey"],
        "aws_session_token": said["SessionToken"],
    }
    aws.api.enforce_iam(False)


def test_a_machine_has_no_access_beyond_its_run(aws: AwsWorld, as_machine: dict[str, str]) -> None:
    """It uses its own run and reads its job's data. Other runs and data, the account and new machines are denied."""
    s3 = aws.api.client("s3", **as_machine)
    ec2 = aws.api.client("ec2", **as_machine)
    own = f"runs/{RUN}/manifest.json"
    assert s3.get_object(Bucket=BUCKET, Key=own)["Body"].read() == b"{}"
    s3.put_object(Bucket=BUCKET, Key=own, Body=b"[]")
    assert s3.get_object(Bucket=BUCKET, Key=f"data/{DATA}/index.json.gz")["Body"].read() == b"{}"
    iam = aws.api.client("iam", **as_machine)
    tries: list[Callable[[], object]] = [
        lambda: s3.get_object(Bucket=BUCKET, Key=f"runs/{OTHER}/manifest.json"),
        lambda: s3.put_object(Bucket=BUCKET, Key=f"runs/{OTHER}/manifest.json", Body=b""),
        lambda: s3.get_object(Bucket=BUCKET, Key="data/maps/index.json.gz"),
        lambda: s3.put_object(Bucket=BUCKET, Key=f"data/{DATA}/index.json.gz", Body=b""),
        s3.list_buckets,
        lambda: ec2.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1),
        ec2.describe_instances,
        iam.list_roles,
    ]
    for attempt in tries:
        with pytest.raises(ClientError) as caught:
            attempt()
        assert caught.value.response["Error"]["Code"] in {"AccessDenied", "UnauthorizedOperation"}


def test_a_role_to_which_others_added_policies_is_still_deleted(aws: AwsWorld) -> None:
    """IAM deletes no role that has a policy or an instance profile, so kedge removes those first.

    fact: aws-delete-conflict
    """
    aws.provider().create(aws.order())
    iam = aws.api.client("iam")
    name = role_name(RUN)
    nothing = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}
    iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore")
    iam.put_role_policy(RoleName=name, PolicyName="theirs", PolicyDocument=json.dumps(nothing))
    iam.create_instance_profile(InstanceProfileName="theirs")
    iam.add_role_to_instance_profile(InstanceProfileName="theirs", RoleName=name)
    aws.provider().destroy(f"{RUN}-m1")
    assert f"removed role {name}" in aws.provider().release(RUN)
    assert leftovers(aws.api) == ["profile theirs"]
    assert iam.get_instance_profile(InstanceProfileName="theirs")["InstanceProfile"]["Roles"] == []
