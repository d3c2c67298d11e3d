"""What kedge has in an AWS account: one CloudFormation stack (infra/aws/account.yaml), and how it is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.account_stack import Stack, find_stack

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from orchestrator.adapters.providers.aws.session import AwsSession

SCHEDULER_ROLE = "kedge-scheduler"
"""The role's name in account.yaml; its tag `kedge-region` says where the stack is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What kedge has in an account.

    Attributes:
        bucket: for code, checkpoints, results and data sets.
        boundary_arn: the permissions boundary of every run's role.
        scheduler_role_arn: what EventBridge Scheduler assumes to end a machine.
        region: of the stack and the bucket.
        read_buckets: other buckets that a run may read where its job names them.
        shared_role: every run has the role `kedge-runs`, and none its own.
    """

    bucket: str
    boundary_arn: str
    scheduler_role_arn: str
    region: str = ""
    read_buckets: Sequence[str] = ()
    shared_role: bool = False

    @property
    def id(self) -> str:
        """The account's twelve digits."""
        return self.boundary_arn.split(":")[4]

    @property
    def partition(self) -> str:
        """Of AWS: `aws`, `aws-cn` or `aws-us-gov`."""
        return self.boundary_arn.split(":")[1]


def read_account(client: CloudFormationClient) -> Account | None:
    """Return what kedge has in the account, in the client's region; None before a bootstrap. One call.

    Raises:
        KedgeError: CloudFormation doesn't tell.
    """
    try:
        stack = find_stack(client)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the account level of AWS can't be read") from err
    return account_of(stack) if stack is not None else None


def find_account(session: AwsSession) -> Account | None:
    """Return what kedge has in the account, whatever region it is in; None before a bootstrap. Two calls.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    region = home_region(session)
    return read_account(session.client("cloudformation", region)) if region else None


def home_region(session: AwsSession) -> str:
    """Return the region in which the account level is; empty before a bootstrap.

    Raises:
        KedgeError: IAM doesn't tell.
    """
    try:
        tags = session.client("iam").get_role(RoleName=SCHEDULER_ROLE)["Role"].get("Tags", ())
    except (ClientError, BotoCoreError) as err:
        if isinstance(err, ClientError) and code_of(err) == "NoSuchEntity":
            return ""
        raise translate(err, "the account level of AWS can't be looked for") from err
    return next((tag["Value"] for tag in tags if tag["Key"] == "kedge-region"), "")


def account_of(stack: Stack) -> Account | None:
    """Read a stack's outputs; None for a stack that has none, or not all of them."""
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
    )
