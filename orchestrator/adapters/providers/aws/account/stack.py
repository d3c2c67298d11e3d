"""The CloudFormation stack of the account level: finds it, waits for its operations, reports why one failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from orchestrator.adapters.aws_sdk import code_of, message_of
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from orchestrator.core.ports import Clock

STACK = "kedge-account"
"""The stack's name; an account has one."""

REVIEW = "REVIEW_IN_PROGRESS"
"""The status of a stack that has a change set and no resources."""

_POLL = timedelta(seconds=2)
# Creation takes about a minute, nearly all of it IAM; ten minutes cover a bad day.
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack as CloudFormation describes it."""

    id: str
    status: str
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]


def find_stack(client: CloudFormationClient, name: str = STACK) -> Stack | None:
    """Look a stack up by its name or id; None if there is none.

    Raises:
        ClientError: CloudFormation doesn't tell.
    """
    try:
        found = client.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as err:
        # CloudFormation has no separate code for this.
        if code_of(err) == "ValidationError" and "does not exist" in message_of(err):
            return None
        raise
    return Stack(
        id=found["StackId"],
        status=found["StackStatus"],
        parameters={p["ParameterKey"]: p["ParameterValue"] for p in found.get("Parameters", ())},
        outputs={output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", ())},
    )


def await_stack(client: CloudFormationClient, stack_id: str, clock: Clock) -> Stack:
    """Wait until CloudFormation's operation on a stack has ended, with or without success.

    Args:
        client: of the stack's region.
        stack_id: its ARN, which also finds a deleted stack.
        clock: for waits.

    Raises:
        KedgeError: the operation didn't end in time.
        ClientError: CloudFormation doesn't tell.
    """

    def look() -> Stack | None:
        stack = find_stack(client, stack_id) or Stack(id=stack_id, status="DELETE_COMPLETE", parameters={}, outputs={})
        return None if stack.status.endswith("_IN_PROGRESS") else stack

    if (stack := poll_until(look, _PATIENCE, clock, first=_POLL, longest=_POLL)) is None:
        raise KedgeError(
            f"the stack {STACK} is still being changed",
            why=f"CloudFormation didn't end in {_PATIENCE.total_seconds() / 60:.0f} minutes",
            fix="look at it in the CloudFormation console, then run the command again",
        )
    return stack


def failure_reason(client: CloudFormationClient, stack_id: str) -> str:
    """Say why CloudFormation failed: its first error; the later ones follow from it.

    Raises:
        ClientError: CloudFormation doesn't tell.
    """
    reason = ""
    # The newest comes first; stop at the start of the present operation.
    for event in client.describe_stack_events(StackName=stack_id)["StackEvents"]:
        if event.get("ResourceStatus", "").endswith("_FAILED"):
            said = " ".join(event.get("ResourceStatusReason", "").split())
            reason = f"{event.get('LogicalResourceId', '')}: {said}"
        if event.get("ResourceStatusReason") == "User Initiated":
            break
    return reason or "CloudFormation gave no reason"
