"""The identity of a run's machines: one IAM role for each run, with the account's boundary and one policy."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.adapters.providers.aws.run_resources.policy import Document
from orchestrator.adapters.providers.aws.tags import RUN, iam_tags, run_tags
from orchestrator.adapters.providers.aws.traits import APPEARS_IN

if TYPE_CHECKING:
    from mypy_boto3_iam import IAMClient

    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.core.ports import Clock
    from orchestrator.core.values.site import Site

_log = logging.getLogger(__name__)

_PATH = "/kedge/"
_POLICY = "own-objects"
_TRUST: Document = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
"""EC2 may give the role to machines. In China the service has another name; partitions.py refuses that partition."""


def make_identity(iam: IAMClient, run_id: str, policy: Document, account: Account, clock: Clock, site: Site) -> None:
    """Create a run's role and instance profile, or what is missing of them: five calls at most.

    Args:
        iam: the client.
        run_id: the run.
        policy: what its machines may do.
        account: has the role's boundary.
        clock: for waits.
        site: has the user's tags.

    Raises:
        KedgeError: IAM doesn't allow it.
    """
    name = role_name(run_id)
    tags = iam_tags(run_tags(run_id, site))
    steps: tuple[Callable[[], object], ...] = (
        lambda: iam.create_role(
            RoleName=name,
            Path=_PATH,
            Description=f"kedge: the machines of run {run_id}",
            AssumeRolePolicyDocument=json.dumps(_TRUST),
            PermissionsBoundary=account.boundary_arn,
            Tags=tags,
        ),
        lambda: iam.put_role_policy(
            RoleName=name,
            PolicyName=_POLICY,
            PolicyDocument=json.dumps(policy),
        ),
        lambda: iam.create_instance_profile(InstanceProfileName=name, Path=_PATH, Tags=tags),
        lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name),
    )
    patient = tuple(partial(retry, step, on=_is_unknown, within=APPEARS_IN, clock=clock) for step in steps)
    _take(patient, "EntityAlreadyExists", "LimitExceeded", what=f"the role of run {run_id} can't be made")


def remove_identity(iam: IAMClient, run_id: str) -> bool:
    """Delete a run's role and instance profile, and whatever else was added to the role; missing ones are no error.

    For a missing role, IAM may check permissions on its name without the path (inferred: iam-missing-no-path): the
    operator's policy allows both names.

    Returns:
        Whether anything of them existed.

    Raises:
        KedgeError: IAM doesn't allow it.
    """
    name = role_name(run_id)
    steps: tuple[Callable[[], object], ...] = (
        lambda: iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name),
        lambda: iam.delete_instance_profile(InstanceProfileName=name),
        lambda: iam.delete_role_policy(RoleName=name, PolicyName=_POLICY),
        lambda: _delete_role(iam, name),
    )
    return _take(steps, "NoSuchEntity", what=f"the role of run {run_id} can't be removed")


def has_identity(iam: IAMClient, run_id: str) -> bool:
    """Tell whether a run has its own role.

    Raises:
        KedgeError: IAM doesn't tell.
    """
    try:
        iam.get_role(RoleName=role_name(run_id))
    except (ClientError, BotoCoreError) as err:
        if isinstance(err, ClientError) and code_of(err) == "NoSuchEntity":
            return False
        raise translate(err, f"the role of run {run_id} can't be looked up") from err
    return True


def list_roles(iam: IAMClient) -> Sequence[tuple[str, str]]:
    """List the roles of runs as (role, run); a run's role is the last part of its identity to be deleted.

    Raises:
        KedgeError: IAM doesn't tell.
    """
    try:
        pages = iam.get_paginator("list_roles").paginate(PathPrefix=_PATH)
        names = [role["RoleName"] for page in pages for role in page["Roles"]]
        tagged = [(name, iam.list_role_tags(RoleName=name)["Tags"]) for name in names]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the roles of runs can't be listed") from err
    runs = [(name, {tag["Key"]: tag["Value"] for tag in tags}.get(RUN, "")) for name, tags in tagged]
    return [(name, run_id) for name, run_id in runs if run_id]


def _delete_role(iam: IAMClient, name: str) -> None:
    try:
        iam.delete_role(RoleName=name)
    except ClientError as err:
        if code_of(err) != "DeleteConflict":
            raise
        _take_foreign_parts(iam, name)
        iam.delete_role(RoleName=name)


def _take_foreign_parts(iam: IAMClient, name: str) -> None:
    """Remove what others added to a role: IAM refuses to delete it before that. fact: aws-delete-conflict."""
    for attached in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        _log.warning("policy %s, which isn't kedge's, is detached from role %s", attached["PolicyArn"], name)
        iam.detach_role_policy(RoleName=name, PolicyArn=attached["PolicyArn"])
    for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]:
        _log.warning("policy %s, which isn't kedge's, is deleted with role %s", policy, name)
        iam.delete_role_policy(RoleName=name, PolicyName=policy)
    for profile in iam.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"]:
        _log.warning("role %s is taken out of instance profile %s", name, profile["InstanceProfileName"])
        iam.remove_role_from_instance_profile(InstanceProfileName=profile["InstanceProfileName"], RoleName=name)


def _take(steps: tuple[Callable[[], object], ...], *fine: str, what: str) -> bool:
    """Run steps that another command may have run already; tell whether any had an effect."""
    taken = 0
    for step in steps:
        try:
            step()
            taken += 1
        except ClientError as err:
            # A profile holds one role: LimitExceeded from the step that adds it means that it is there.
            if code_of(err) not in fine or (
                code_of(err) == "LimitExceeded" and err.operation_name != "AddRoleToInstanceProfile"
            ):
                raise translate(err, what) from err
        except BotoCoreError as err:
            raise translate(err, what) from err
    return taken > 0


def _is_unknown(err: BaseException) -> bool:
    """Tell whether IAM doesn't know a role or profile yet that was created a moment ago."""
    return isinstance(err, ClientError) and code_of(err) == "NoSuchEntity"
