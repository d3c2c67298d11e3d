"""Finds the account level: one CloudFormation stack (infra/aws/account.yaml) with a bucket and roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.account.stack import Stack, find_stack

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from orchestrator.adapters.providers.aws.access.session import AwsSession

SCHEDULER_ROLE = "kedge-scheduler"
"""The role's name in account.yaml; its tag `kedge-region` says where the stack is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The account level: the outputs of the stack.

    Attributes:
        bucket: for code, checkpoints, results and data sets.
        boundary_arn: the permissions boundary of every run's role.
        scheduler_role_arn: what EventBridge Scheduler assumes to end a machine.
        region: of the stack and the bucket.
        read_buckets: other buckets that a run may read if its job names them.
        shared_role: all runs share the role `kedge-runs`; no run has its own.
        stores_secrets: the roles of runs may read parameters; False if an earlier kedge has set the account up.
    """

    bucket: str
    boundary_arn: str
    scheduler_role_arn: str
    region: str = ""
    read_buckets: Sequence[str] = ()
    shared_role: bool = False
    stores_secrets: bool = False

    @property
    def id(self) -> str:
        """The account's twelve digits."""
        return self.boundary_arn.split(":")[4]

    @property
    def partition(self) -> str:
        """The AWS partition: `aws`, `aws-cn` or `aws-us-gov`."""
        return self.boundary_arn.split(":")[1]


def read_account(client: CloudFormationClient) -> Account | None:
    """Return the account level in the client's region; None before a bootstrap. One call.

    Raises:
        KedgeError: CloudFormation refuses, or doesn't answer.
    """
    try:
        stack = find_stack(client)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the account level of AWS can't be read") from err
    return account_of(stack) if stack is not None else None


def find_account(session: AwsSession) -> Account | None:
    """Return the account level, whatever region it is in; None before a bootstrap. Two calls.

    Raises:
        KedgeError: AWS refuses, or doesn't answer.
    """
    region = account_region(session)
    return read_account(session.client("cloudformation", region)) if region else None


def account_region(session: AwsSession) -> str:
    """Return the region in which the account level is; empty before a bootstrap.

    Raises:
        KedgeError: IAM refuses, or doesn't answer.
    """
    try:
        tags = session.client("iam").get_role(RoleName=SCHEDULER_ROLE)["Role"].get("Tags", ())
    except (ClientError, BotoCoreError) as err:
        if isinstance(err, ClientError) and code_of(err) == "NoSuchEntity":
            return ""
        raise translate(err, "the account level of AWS can't be looked up") from err
    return next((tag["Value"] for tag in tags if tag["Key"] == "kedge-region"), "")


def account_of(stack: Stack) -> Account | None:
    """Read a stack's outputs; None if some are missing."""
    names = ("Bucket", "BoundaryArn", "SchedulerRoleArn")
    if not all(stack.outputs.get(name) for name in names):
        return None
    bucket, boundary, role = (stack.outputs[name] for name in names)
    return Account(
        bucket=bucket,
        boundary_arn=boundary,
        scheduler_role_arn=role,
        region=stack.id.split(":")[3],
        read_buckets=tuple(name for name in stack.parameters.get("ReadBuckets", "").split(",") if name),
        shared_role=bool(stack.outputs.get("RunProfile")),
        stores_secrets=bool(stack.outputs.get("SecretsPath")),
    )
