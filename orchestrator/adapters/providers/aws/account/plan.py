"""Plans and applies changes of the account level, as CloudFormation change sets.

CloudFormation describes in a change set what it will do, and executing it does exactly that. A stack that exists only
as a change set has no resources; `discard_account` deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.providers.aws.account.bucket import default_bucket, look_at_bucket, own_s3
from orchestrator.adapters.providers.aws.account.budget import BudgetChange, apply_budget, is_in_stack, plan_budget
from orchestrator.adapters.providers.aws.account.changes import Change, list_changes
from orchestrator.adapters.providers.aws.account.level import Account, account_of, account_region
from orchestrator.adapters.providers.aws.account.settings import AccountSettings, resolve_settings
from orchestrator.adapters.providers.aws.account.stack import (
    REVIEW,
    STACK,
    Stack,
    await_stack,
    failure_reason,
    find_stack,
)
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.type_defs import DescribeChangeSetOutputTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.ports import Clock


class _Kind(TypedDict):
    ChangeSetType: Literal["CREATE", "UPDATE"]
    OnStackFailure: NotRequired[Literal["DELETE"]]
    ImportExistingResources: NotRequired[bool]


# A failed creation leaves no stack; if it leaves a bucket, the next creation imports that.
_CREATION: _Kind = {"ChangeSetType": "CREATE", "OnStackFailure": "DELETE", "ImportExistingResources": True}
_UPDATE: _Kind = {"ChangeSetType": "UPDATE"}
_NAMED_BY_PARAMETER = "BucketName: !If [NamedBucket, !Ref BucketName, !Ref AWS::NoValue]"
_PENDING = ("CREATE_PENDING", "CREATE_IN_PROGRESS")
_POLL = timedelta(seconds=1)
_PATIENCE = timedelta(minutes=2)
_NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """What a bootstrap would do.

    Attributes:
        kind: of the stack's change; `none` if the stack is up to date.
        changes: in CloudFormation's order, then the budget's.
        change_set: its ARN; empty if the stack doesn't change.
        budget: the change of the budget; None if it stays as it is.
    """

    kind: Literal["create", "update", "none"]
    account_id: str
    region: str
    changes: tuple[Change, ...] = ()
    stack_id: str = ""
    change_set: str = ""
    budget: BudgetChange | None = None


def plan_account(session: AwsSession, template: str, wanted: AccountSettings, clock: Clock) -> AccountChange:
    """Create a change set and return what it would change. No resource is touched until the change set is executed.

    Args:
        session: of the region for the account level.
        template: the text of account.yaml.
        wanted: the settings to change; others keep their present value, or the template's default.
        clock: for waits.

    Raises:
        BadRequestError: the account level is in another region, or a setting isn't possible.
        ConflictError: somebody else is changing the stack.
        KedgeError: CloudFormation refused.
    """
    _refuse_second_region(session)
    client = session.client("cloudformation")
    try:
        stack = _usable_stack(client, clock)
        settings = resolve_settings(stack, wanted, default_bucket=default_bucket(session))
        budget = plan_budget(session, wanted, in_stack=is_in_stack(stack))
        if stack is None:
            _refuse_foreign_bucket(session, settings["BucketName"])
        described = _make_change_set(client, stack, _name_bucket(template, settings["BucketName"]), settings, clock)
        change = _plan(session, stack, settings, described)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the changes to the AWS account can't be planned") from err
    return replace(change, changes=(*change.changes, budget.change), budget=budget) if budget else change


def apply_account(session: AwsSession, change: AccountChange, clock: Clock) -> Account:
    """Carry out a planned change and wait until it is done; CloudFormation rolls back a failed one.

    Raises:
        KedgeError: CloudFormation failed or didn't finish in time, or the budget can't be created.
    """
    account = _apply_stack(session.client("cloudformation"), change, clock)
    if change.budget is not None:
        apply_budget(session, change.budget)
    return account


def _apply_stack(client: CloudFormationClient, change: AccountChange, clock: Clock) -> Account:
    try:
        if change.change_set:
            client.execute_change_set(ChangeSetName=change.change_set)
        stack = await_stack(client, change.stack_id, clock)
        is_well = not change.change_set or stack.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        account = account_of(stack) if is_well else None
        if account is None:
            raise KedgeError(
                f"the account level wasn't made: its stack is {stack.status}",
                why=failure_reason(client, change.stack_id),
                fix="fix that and run `kedge bootstrap` again; if the bucket's name is taken, change it with --bucket",
            )
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the AWS account can't be changed") from err
    return account


def discard_account(session: AwsSession, change: AccountChange) -> None:
    """Delete a planned change that wasn't carried out; an executed one is left as it is.

    Raises:
        KedgeError: CloudFormation refused.
    """
    if change.kind == "none":
        return
    client = session.client("cloudformation")
    try:
        stack = find_stack(client, change.stack_id)
        if stack is not None and stack.status == REVIEW:
            client.delete_stack(StackName=change.stack_id)
        elif change.kind == "update":
            _delete_unused(client, change.change_set)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the planned changes to the AWS account can't be discarded") from err


def _refuse_second_region(session: AwsSession) -> None:
    there = account_region(session)
    if there and there != session.region:
        raise BadRequestError(
            f"this AWS account is set up in {there} already",
            why="its bucket serves machines in every region, and the roles' names are the whole account's",
            fix=f"use --region {there}; to move it, `kedge bootstrap --provider aws --region {there} --remove` first",
        )


def _usable_stack(client: CloudFormationClient, clock: Clock) -> Stack | None:
    """Return the stack to update, or None to create one; first delete what an interrupted bootstrap left."""
    stack = find_stack(client)
    if stack is None:
        return None
    if stack.status == REVIEW:
        client.delete_stack(StackName=stack.id)
        await_stack(client, stack.id, clock)
        return None
    if stack.status.endswith("_IN_PROGRESS"):
        raise ConflictError(
            "the account level is being changed at this moment",
            why=f"the stack {STACK} is {stack.status}",
            fix="wait a minute and try again",
        )
    if stack.status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"):
        raise KedgeError(
            f"the stack {STACK} is {stack.status}",
            why=failure_reason(client, stack.id),
            fix="take it away with `kedge bootstrap --provider aws --remove` (the data stays), then run this again",
        )
    return stack


def _refuse_foreign_bucket(session: AwsSession, bucket: str) -> None:
    if look_at_bucket(own_s3(session, session.account_id()), bucket) == "forbidden":
        raise BadRequestError(
            f"the bucket's name {bucket} is taken",
            why="it is another account's, or you may not look into it",
            fix="choose another name with --bucket",
        )


def _name_bucket(template: str, bucket: str) -> str:
    """Write the bucket's name into the template, so that a bucket which an earlier removal left is imported.

    CloudFormation imports only resources that the template names literally, not by a parameter.
    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/import-resources-automatically.html (November 2026)
    """
    return template.replace(_NAMED_BY_PARAMETER, f'BucketName: "{bucket}"') if bucket else template


def _make_change_set(
    client: CloudFormationClient, stack: Stack | None, template: str, settings: Mapping[str, str], clock: Clock
) -> DescribeChangeSetOutputTypeDef:
    """Create a change set and wait until CloudFormation has computed its changes."""
    made = client.create_change_set(
        StackName=STACK,
        ChangeSetName=f"kedge-{clock.now():%Y%m%d-%H%M%S-%f}",
        TemplateBody=template,
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in settings.items()],
        Capabilities=["CAPABILITY_NAMED_IAM"],
        Tags=[{"Key": "kedge", "Value": "account"}],
        **_CREATION if stack is None else _UPDATE,
    )

    def describe() -> DescribeChangeSetOutputTypeDef:
        return client.describe_change_set(ChangeSetName=made["Id"])

    def look() -> DescribeChangeSetOutputTypeDef | None:
        described = describe()
        return None if described["Status"] in _PENDING else described

    return poll_until(look, _PATIENCE, clock, first=_POLL, longest=_POLL) or describe()


def _plan(
    session: AwsSession, stack: Stack | None, settings: Mapping[str, str], described: DescribeChangeSetOutputTypeDef
) -> AccountChange:
    change = AccountChange(
        kind="create" if stack is None else "update",
        account_id=session.account_id(),
        region=session.region,
        changes=list_changes(described["Changes"], stack.parameters if stack is not None else {}, settings),
        stack_id=described["StackId"],
        change_set=described["ChangeSetId"],
    )
    if described["Status"] == "CREATE_COMPLETE":
        return change
    discard_account(session, change)
    reason = " ".join(described.get("StatusReason", described["Status"]).split())
    if any(said in reason for said in _NO_CHANGES):
        return replace(change, kind="none", changes=(), change_set="")
    raise KedgeError("CloudFormation can't plan the account level", why=reason, fix="fix that, then try again")


def _delete_unused(client: CloudFormationClient, change_set: str) -> None:
    """Delete a change set; one that was executed no longer exists."""
    try:
        described = client.describe_change_set(ChangeSetName=change_set)
    except ClientError as err:
        if code_of(err) in ("ChangeSetNotFound", "ValidationError"):
            return
        raise
    if described["ExecutionStatus"] in ("AVAILABLE", "UNAVAILABLE"):
        client.delete_change_set(ChangeSetName=change_set)
