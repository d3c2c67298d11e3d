"""The CloudFormation stack of the account level: find it, wait until it is at rest, say why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from orchestrator.adapters.aws_sdk import code_of, message_of
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from orchestrator.core.ports import Clock

STACK = "kedge-account"
"""The stack's name: one in an account."""

REVIEW = "REVIEW_IN_PROGRESS"
"""A stack of which only a change set exists, and no resource."""

_POLL = timedelta(seconds=2)
# Creation takes about a minute, nearly all of it IAM; ten are what a bad day takes.
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack as CloudFormation describes it."""

    id: str
    status: str
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]


def find_stack(client: CloudFormationClient, name: str = STACK) -> Stack | None:
    """Look a stack up by its name or id; None where there is none of it.

    Raises:
        ClientError: CloudFormation doesn't tell.
    """
    try:
        found = client.describe_stacks(StackName=name)["Stacks"][0]
    except ClientError as err:
        # There is no code of its own for this.
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
    """Wait until CloudFormation has done what it was asked to, well or badly.

    Args:
        client: of the stack's region.
        stack_id: its ARN, by which a deleted stack is still found.
        clock: lets time pass.

    Raises:
        KedgeError: it wasn't at rest in time.
        ClientError: CloudFormation doesn't tell.
    """
    give_up_at = clock.now() + _PATIENCE
    while clock.now() < give_up_at:
        stack = find_stack(client, stack_id)
        if stack is None:
            return Stack(id=stack_id, status="DELETE_COMPLETE", parameters={}, outputs={})
        if not stack.status.endswith("_IN_PROGRESS"):
            return stack
        clock.sleep(_POLL)
    raise KedgeError(
        f"the stack {STACK} is still being changed",
        why=f"CloudFormation didn't end in {_PATIENCE.total_seconds() / 60:.0f} minutes",
        fix="look at it in the CloudFormation console, then run the command again",
    )


def failure_reason(client: CloudFormationClient, stack_id: str) -> str:
    """Say why CloudFormation failed: its first complaint, the later ones follow from it.

    Raises:
        ClientError: CloudFormation doesn't tell.
    """
    reason = ""
    # Newest first, and only as far back as the present operation goes.
    for event in client.describe_stack_events(StackName=stack_id)["StackEvents"]:
        if event.get("ResourceStatus", "").endswith("_FAILED"):
            said = " ".join(event.get("ResourceStatusReason", "").split())
            reason = f"{event.get('LogicalResourceId', '')}: {said}"
        if event.get("ResourceStatusReason") == "User Initiated":
            break
    return reason or "CloudFormation gave no reason"
