"""Removes the account level. The bucket's contents are counted and shown first, and stay unless the user says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import is_denied, translate
from orchestrator.adapters.cloud.model import Phase
from orchestrator.adapters.cloud.sweep import find_machines
from orchestrator.adapters.providers.aws.account.bucket import (
    bucket_versions,
    default_bucket,
    delete_bucket,
    look_at_bucket,
    own_s3,
)
from orchestrator.adapters.providers.aws.account.budget import Budget, read_budget, remove_budget
from orchestrator.adapters.providers.aws.account.changes import Change, describe_resource
from orchestrator.adapters.providers.aws.account.stack import Stack, await_stack, failure_reason, find_stack
from orchestrator.adapters.providers.aws.instances.find_instances import AwsInstances
from orchestrator.adapters.providers.aws.naming import SHARED_ROLE
from orchestrator.adapters.providers.aws.run_resources.secrets import PATH, list_parameters
from orchestrator.core.errors import ConflictError, KedgeError
from orchestrator.core.values.units import format_bytes

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRemoval:
    """What a removal would delete.

    Attributes:
        stack_id: empty if only a bucket is left from an earlier removal.
        bucket: its name; empty if it is gone already.
        objects: the number of objects in the bucket, counting every version.
        bytes: the size of those objects.
        resources: descriptions, without the bucket.
        budget: None if there is none, or if the user may not read it.
        notes: what couldn't be read, one line each.
    """

    account_id: str
    region: str
    stack_id: str
    bucket: str
    objects: int
    bytes: int
    resources: tuple[str, ...]
    budget: Budget | None = None
    notes: tuple[str, ...] = ()

    def changes(self, *, delete_data: bool) -> tuple[Change, ...]:
        """List what is deleted, and say what happens to the bucket."""
        gone = tuple(Change(sign="-", says=words) for words in self.resources)
        if self.budget is not None:
            gone += (Change(sign="-", says=f"budget alarm for the whole account: {self.budget}"),)
        if not self.bucket:
            return gone
        name = describe_resource("Bucket", self.bucket)
        holds = f"{self.objects:,} objects, {format_bytes(self.bytes)}"
        if not self.objects:
            return (*gone, Change(sign="-", says=f"{name} (empty)"))
        if delete_data:
            return (*gone, Change(sign="-", says=f"{name}, WITH ITS DATA: {holds}"))
        return (*gone, Change(sign="~", says=f"{name} stays, and costs money: {holds}; --delete-data deletes it"))


def plan_removal(session: AwsSession, recorded: Collection[str] = ()) -> AccountRemoval | None:
    """Read what the account level contains; None if there is none in the session's region. Changes nothing.

    A bucket that an earlier removal left is found by its name, if kedge chose the name.

    Args:
        session: of the account level's region.
        recorded: regions in which this computer has created something.

    Raises:
        ConflictError: runs' roles or machines still need it.
        KedgeError: AWS refuses, or doesn't answer.
    """
    client = session.client("cloudformation")
    try:
        stack = find_stack(client)
        found = _resources(client, stack) if stack is not None else {"Bucket": default_bucket(session)}
        notes = _refuse_while_needed(session, found, recorded)
        bucket = _existing(session, found.pop("Bucket", ""), surely_ours=stack is not None)
        sizes = [size for _, size in bucket_versions(own_s3(session, session.account_id()), bucket)] if bucket else []
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the account level of AWS can't be read") from err
    budget, unread = _look_at_budget(session)
    if stack is None and not bucket and budget is None and not unread:
        return None
    return AccountRemoval(
        account_id=session.account_id(),
        region=session.region,
        stack_id=stack.id if stack is not None else "",
        bucket=bucket,
        objects=len(sizes),
        bytes=sum(sizes),
        resources=tuple(describe_resource(logical_id) for logical_id in found),
        budget=budget,
        notes=(*notes, *unread),
    )


def remove_account(session: AwsSession, removal: AccountRemoval, clock: Clock, *, delete_data: bool) -> None:
    """Delete the account level and wait until it is gone. An interrupted removal can be continued.

    Args:
        session: of the account level's region.
        removal: the plan that was shown to the user.
        clock: for waits.
        delete_data: delete the bucket with its contents; an empty bucket is always deleted.

    Raises:
        KedgeError: AWS refused, or didn't finish in time.
    """
    client = session.client("cloudformation")
    if removal.budget is not None:
        remove_budget(session)
    try:
        # The bucket first: while the stack exists, an interrupted removal finds the bucket again.
        if removal.bucket and (delete_data or not removal.objects):
            delete_bucket(own_s3(session, removal.account_id), removal.bucket, with_data=delete_data)
        if removal.stack_id:
            _delete_stack(client, removal.stack_id, clock)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the account level of AWS can't be removed") from err


def _look_at_budget(session: AwsSession) -> tuple[Budget | None, tuple[str, ...]]:
    """Return the budget; if the user may not read it, a note says that it stays, and the rest is still removed."""
    try:
        return read_budget(session), ()
    except KedgeError as err:
        if not is_denied(err):
            raise
        return None, (f"the budget alarm stays, if there is one: {err.why}",)


def _resources(client: CloudFormationClient, stack: Stack) -> dict[str, str]:
    """Return the physical ids of the stack's resources, keyed by their names in account.yaml."""
    pages = client.get_paginator("list_stack_resources").paginate(StackName=stack.id)
    return {
        resource["LogicalResourceId"]: resource.get("PhysicalResourceId", "")
        for page in pages
        for resource in page["StackResourceSummaries"]
        if resource["ResourceStatus"] != "DELETE_COMPLETE"
    }


def _delete_stack(client: CloudFormationClient, stack_id: str, clock: Clock) -> None:
    client.delete_stack(StackName=stack_id)
    stack = await_stack(client, stack_id, clock)
    if stack.status != "DELETE_COMPLETE":
        raise KedgeError(
            f"the account level isn't gone: its stack is {stack.status}",
            why=failure_reason(client, stack_id),
            fix="fix that, then run the same command again",
        )


def _refuse_while_needed(session: AwsSession, found: Mapping[str, str], recorded: Collection[str]) -> tuple[str, ...]:
    """Refuse while runs have secrets, roles with the boundary, or machines with the shared role.

    IAM would refuse too, but only after half of the account level is gone. Without the account level, `reap` would no
    longer find the secrets.

    Returns:
        Notes about regions that are closed to the account, in which there can be no such machine.
    """
    if not found.get("RunBoundary"):
        return ()
    pages = session.client("iam").get_paginator("list_entities_for_policy").paginate(PolicyArn=found["RunBoundary"])
    roles = {role["RoleName"] for page in pages for role in page["PolicyRoles"]} - {SHARED_ROLE}
    _refuse_needed("their roles are there", roles)
    secrets = list_parameters(session.client("ssm"), PATH)
    _refuse_needed("their secrets are there (`kedge reap` deletes them)", {left.run_id for left in secrets})
    if "SharedRunRole" not in found:
        return ()
    seen = find_machines(AwsInstances(session), recorded)
    living = {each.machine_id for each in seen.instances if each.phase is not Phase.GONE}
    _refuse_needed("their machines have its role", living)
    unseen = [part.what for part in seen.unseen if part.may_bill]
    if unseen:
        raise KedgeError(
            "machines may still have the role of all runs",
            why="; ".join(unseen),
            fix="have an administrator allow ec2:DescribeInstances in every region, or use another profile",
        )
    return tuple(part.what for part in seen.unseen)


def _refuse_needed(why: str, names: Collection[str]) -> None:
    if names:
        raise ConflictError(
            "runs still need the account level",
            why=f"{why}: {', '.join(sorted(names)[:5])}{' and more' if len(names) > 5 else ''}",
            fix="end them with `kedge teardown`; `kedge status` lists them",
        )


def _existing(session: AwsSession, bucket: str, *, surely_ours: bool) -> str:
    """Return the bucket's name; empty if there is none, or if only its name suggests that it is ours."""
    if not bucket:
        return ""
    state = look_at_bucket(own_s3(session, session.account_id()), bucket)
    if state == "forbidden" and surely_ours:
        raise KedgeError(
            f"the bucket {bucket} can't be read",
            why="S3 answered HeadBucket with 403: you may not, or another account has taken the name",
            fix="have an administrator allow s3:ListBucket on it, or use another profile",
        )
    return bucket if state == "ours" else ""
