"""What the shipped account.yaml allows, and what it denies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from moto.iam.access_control import IAMPolicy, PermissionResult

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.changes import Change
from orchestrator.adapters.providers.aws.account.plan import (
    apply_account,
)
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from tests.adapters.aws.account.bootstraps import BUCKET, CLOCK, TEMPLATE, plan, properties, set_up
from tests.adapters.aws.account_moto import ACCOUNT_ID

# moto emits this warning for the bucket's policy.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")


def test_cfn_lint_finds_no_mistake_in_the_template() -> None:
    """CloudFormation knows its types, properties, references and functions."""
    lint = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), TEMPLATE], capture_output=True, text=True, check=False
    )
    assert (lint.returncode, lint.stdout) == (0, "")


def test_the_bucket_is_encrypted_private_and_cleans_up_after_itself() -> None:
    """No object is public or unencrypted. Stale uploads and old runs expire; data sets stay."""
    bucket = properties("Bucket")
    default = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]["ServerSideEncryptionByDefault"]
    assert default == {"SSEAlgorithm": "AES256"}
    assert list(bucket["PublicAccessBlockConfiguration"].values()) == [True] * 4
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "VersioningConfiguration" not in bucket
    uploads, runs = bucket["LifecycleConfiguration"]["Rules"]
    assert uploads["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    assert (runs["Prefix"], runs["ExpirationInDays"]) == ("runs/", "RunDays")
    refused = properties("BucketPolicy")["PolicyDocument"]["Statement"][0]
    assert (refused["Effect"], refused["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_shared_run_role_is_created_on_request_and_removed_with_the_rest(session: AwsSession) -> None:
    """The boundary is its limit and its only policy. The plan says that runs can then read each other's results."""
    change = plan(session, AccountSettings(run_role=True))
    assert any("results of every other run" in line.says for line in change.changes)
    assert apply_account(session, change, CLOCK).shared_role
    iam = session.client("iam")
    role = iam.get_role(RoleName="kedge-runs")["Role"]
    boundary = f"arn:aws:iam::{ACCOUNT_ID}:policy/kedge-run-boundary"
    assert (role["Path"], role["PermissionsBoundary"]["PermissionsBoundaryArn"]) == ("/kedge/", boundary)
    attached = iam.list_attached_role_policies(RoleName="kedge-runs")["AttachedPolicies"]
    assert [policy["PolicyArn"] for policy in attached] == [boundary]
    (profile,) = iam.list_instance_profiles_for_role(RoleName="kedge-runs")["InstanceProfiles"]
    assert profile["InstanceProfileName"] == "kedge-runs"
    assert plan(session).changes == ()
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=False)
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
    assert iam.list_roles(PathPrefix="/kedge/")["Roles"] == []


def test_the_boundary_confines_every_role_of_a_run(session: AwsSession) -> None:
    """Even a role with a policy of `*` can only use objects of runs and read data."""
    account = set_up(session)
    iam = session.client("iam")
    version = iam.get_policy_version(PolicyArn=account.boundary_arn, VersionId="v1")["PolicyVersion"]
    document: Any = version["Document"]
    boundary = IAMPolicy(json.dumps(document))

    def allowed(action: str, resource: str) -> bool:
        return boundary.is_action_permitted(action, resource) is PermissionResult.PERMITTED

    ours = f"arn:aws:s3:::{BUCKET}"
    assert all(allowed(f"s3:{verb}Object", f"{ours}/runs/a/manifest.json") for verb in ("Get", "Put", "Delete"))
    assert allowed("s3:GetObject", f"{ours}/data/scans/1.tar")
    assert not allowed("s3:PutObject", f"{ours}/data/scans/1.tar")
    assert not allowed("s3:GetObject", f"{ours}/elsewhere")
    assert not allowed("s3:GetObject", "arn:aws:s3:::another-bucket/runs/a")
    assert not allowed("s3:DeleteBucket", ours)
    for action in ("iam:CreateRole", "iam:PassRole", "ec2:RunInstances", "ec2:TerminateInstances", "sts:AssumeRole"):
        assert not allowed(action, "*")
    listing = document["Statement"][2]
    assert listing["Action"] == "s3:ListBucket"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["runs/*", "data/*"]}}


def test_a_named_bucket_may_be_read_and_nothing_else(session: AwsSession) -> None:
    """`--read-bucket` names them. The list stays until another one is given; an empty name clears it."""
    account = set_up(session, AccountSettings(read_buckets=("my-data", "more.data")))
    assert tuple(account.read_buckets) == ("my-data", "more.data")
    iam = session.client("iam")
    version = iam.get_policy(PolicyArn=account.boundary_arn)["Policy"]["DefaultVersionId"]
    found = iam.get_policy_version(PolicyArn=account.boundary_arn, VersionId=version)["PolicyVersion"]
    boundary = IAMPolicy(json.dumps(found["Document"]))

    def allowed(action: str, resource: str) -> bool:
        return boundary.is_action_permitted(action, f"arn:aws:s3:::{resource}") is PermissionResult.PERMITTED

    for name in ("my-data", "more.data"):
        assert allowed("s3:GetObject", f"{name}/a/b")
        assert allowed("s3:ListBucket", name)
        assert not allowed("s3:PutObject", f"{name}/a/b")
        assert not allowed("s3:DeleteObject", f"{name}/a/b")
    assert not allowed("s3:GetObject", "my-data-2/a")
    assert not allowed("s3:GetObject", "another-bucket/a")

    assert plan(session).kind == "none"
    change = plan(session, AccountSettings(read_buckets=()))
    said = "other buckets that runs may read where their job names them: my-data,more.data -> none"
    assert Change(sign="~", says=said) in change.changes
    assert apply_account(session, change, CLOCK).read_buckets == ()


def test_the_scheduler_ends_only_kedges_machines_of_this_account(session: AwsSession) -> None:
    """The role may only terminate instances with kedge's tag, and only for schedules of this account."""
    set_up(session)
    iam = session.client("iam")
    trust: Any = iam.get_role(RoleName="kedge-scheduler")["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Statement"][0]["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}}
    assert iam.list_role_policies(RoleName="kedge-scheduler")["PolicyNames"] == ["terminate-kedge-machines"]
    assert "ManagedPolicyArns" not in properties("SchedulerRole")
    assert properties("SchedulerRole")["Policies"][0]["PolicyDocument"]["Statement"] == [
        {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": "arn:${AWS::Partition}:ec2:*:${AWS::AccountId}:instance/*",
            "Condition": {"StringLike": {"ec2:ResourceTag/kedge-machine": "*"}},
        }
    ]
