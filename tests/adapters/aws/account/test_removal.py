"""Removal of the account level: data is kept unless the user asks; runs that need it block it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.stub import Stubber
from moto.s3.models import s3_backends

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.level import find_account, read_account
from orchestrator.adapters.providers.aws.account.stack import STACK, find_stack
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from orchestrator.adapters.providers.aws.run_resources.secrets import PATH, list_parameters
from orchestrator.core.errors import BadRequestError, ConflictError
from tests.adapters.aws.account.bootstraps import BUCKET, CLOCK, plan, set_up
from tests.adapters.aws.account_moto import ACCOUNT_ID
from tests.support.waiting import wait_until

# moto emits this warning for the bucket's policy.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")


def test_a_removal_counts_the_data_and_leaves_it(session: AwsSession) -> None:
    """The bucket stays with its objects; a later command can delete it."""
    set_up(session)
    s3 = session.client("s3")
    for name in ("runs/a", "runs/b", "data/c"):
        s3.put_object(Bucket=BUCKET, Key=name, Body=bytes(1000))
    removal = plan_removal(session)
    assert removal is not None
    assert (removal.bucket, removal.objects, removal.bytes) == (BUCKET, 3, 3000)
    assert "stays" in removal.changes(delete_data=False)[-1].says
    assert "3 objects, 3.0 kB" in removal.changes(delete_data=False)[-1].says

    remove_account(session, removal, CLOCK, delete_data=False)
    assert find_account(session) is None
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 3

    left = plan_removal(session)
    assert left is not None
    assert "WITH ITS DATA: 3 objects" in left.changes(delete_data=True)[-1].says
    remove_account(session, left, CLOCK, delete_data=True)
    assert s3.list_buckets()["Buckets"] == []
    assert plan_removal(session) is None


def test_a_kept_bucket_is_adopted_by_the_next_bootstrap(session: AwsSession) -> None:
    """Data sets outlive a removal: the next bootstrap uses the same bucket, with its objects.

    CloudFormation imports a bucket only where the template names it without a function.
    """
    set_up(session)
    session.client("s3").put_object(Bucket=BUCKET, Key="data/c", Body=b"x")
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=False)
    assert set_up(session).bucket == BUCKET
    template: Any = session.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    assert f'BucketName: "{BUCKET}"' in str(template)
    assert session.client("s3").list_objects_v2(Bucket=BUCKET)["KeyCount"] == 1
    assert plan(session).kind == "none"


def test_a_bucket_of_another_account_is_not_adopted(session: AwsSession) -> None:
    """Bucket names are global: kedge asks for another name before it creates anything."""
    with Stubber(session.client("s3")) as stubber:
        stubber.add_client_error("head_bucket", service_error_code="403", http_status_code=403)
        with pytest.raises(BadRequestError, match="is taken") as caught:
            plan(session)
    assert "--bucket" in caught.value.fix
    assert find_stack(session.client("cloudformation")) is None


def test_data_is_deleted_on_request(session: AwsSession) -> None:
    """More objects than one request can delete, and their older versions."""
    set_up(session)
    s3 = session.client("s3")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for number in range(1002):
        s3_backends[ACCOUNT_ID]["aws"].put_object(BUCKET, f"runs/{number}", b"x")
    s3.delete_object(Bucket=BUCKET, Key="runs/0")
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=True)
    assert s3.list_buckets()["Buckets"] == []
    assert session.client("iam").list_roles(PathPrefix="/kedge/")["Roles"] == []


def test_an_empty_bucket_is_deleted_with_the_rest(session: AwsSession) -> None:
    """It holds no data that could be lost."""
    set_up(session)
    removal = plan_removal(session)
    assert removal is not None
    assert removal.changes(delete_data=False)[-1].says.endswith(f"{BUCKET} (empty)")
    remove_account(session, removal, CLOCK, delete_data=False)
    assert session.client("s3").list_buckets()["Buckets"] == []


def test_an_interrupted_removal_can_be_continued(session: AwsSession) -> None:
    """The bucket is deleted already; the next removal still finds the rest."""
    account = set_up(session)
    session.client("s3").delete_bucket(Bucket=account.bucket)
    removal = plan_removal(session)
    assert removal is not None
    assert removal.bucket == ""
    remove_account(session, removal, CLOCK, delete_data=False)
    assert find_account(session) is None


def test_a_removal_is_refused_while_runs_have_secrets(session: AwsSession) -> None:
    """Without the account level, `reap` would look for none."""
    set_up(session)
    name = "/kedge/runs/digits-1/m1/HF_TOKEN"
    session.client("ssm").put_parameter(Name=name, Value='"hf_1"', Type="SecureString")
    wait_until(lambda: list_parameters(session.client("ssm"), PATH))
    with pytest.raises(ConflictError, match="runs still need") as caught:
        plan_removal(session)
    assert caught.value.why == "their secrets are there (`kedge reap` deletes them): digits-1"


def test_a_removal_is_refused_while_runs_need_the_account_level(session: AwsSession) -> None:
    """The runs' roles depend on the boundary; half a removal would be worse than none."""
    account = set_up(session)
    iam = session.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName="kedge-run-a", AssumeRolePolicyDocument=document)
    iam.attach_role_policy(RoleName="kedge-run-a", PolicyArn=account.boundary_arn)
    with pytest.raises(ConflictError, match="runs still need") as caught:
        plan_removal(session)
    assert "kedge-run-a" in caught.value.why
    assert read_account(session.client("cloudformation")) == account
