"""Who a run's machines are: one role for each run, which reaches its own objects and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.adapters.providers.aws.patience import APPEARS_IN, ask_again
from orchestrator.adapters.providers.aws.sdk import code_of, translate
from orchestrator.adapters.providers.aws.tags import iam_tags, run_tags

if TYPE_CHECKING:
    from mypy_boto3_iam import IAMClient

    from orchestrator.adapters.providers.aws.account import Account
    from orchestrator.core.ports import Clock

_PATH = "/kedge/"
_POLICY = "own-objects"
_OBJECT_ACTIONS = (
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)

Document = Mapping[str, Any]
"""An IAM policy."""


def write_policy(bucket: str, run_id: str, partition: str = "aws") -> Document:
    """Write what a run's machines may do: their own run's objects, and reading data sets."""
    arn = f"arn:{partition}:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(_OBJECT_ACTIONS), "Resource": f"{arn}/runs/{run_id}/*"},
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{arn}/data/*"},
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": arn,
                "Condition": {"StringLike": {"s3:prefix": [f"runs/{run_id}/*", "data/*"]}},
            },
        ],
    }


def make_identity(iam: IAMClient, run_id: str, account: Account, clock: Clock) -> None:
    """Make a run's role and instance profile, or what is missing of them: five calls at most.

    Raises:
        KedgeError: IAM doesn't allow it.
    """
    name = role_name(run_id)
    partition = account.boundary_arn.split(":")[1]
    tags = iam_tags(run_tags(run_id))
    steps: tuple[Callable[[], object], ...] = (
        lambda: iam.create_role(
            RoleName=name,
            Path=_PATH,
            Description=f"kedge: the machines of run {run_id}",
            AssumeRolePolicyDocument=json.dumps(_trust(partition)),
            PermissionsBoundary=account.boundary_arn,
            Tags=tags,
        ),
        lambda: iam.put_role_policy(
            RoleName=name,
            PolicyName=_POLICY,
            PolicyDocument=json.dumps(write_policy(account.bucket, run_id, partition)),
        ),
        lambda: iam.create_instance_profile(InstanceProfileName=name, Path=_PATH, Tags=tags),
        lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name),
    )
    again = ask_again(clock, APPEARS_IN, _is_unknown)
    patient = tuple(partial(again, step) for step in steps)
    _take(patient, "EntityAlreadyExists", "LimitExceeded", what=f"the role of run {run_id} can't be made")


def remove_identity(iam: IAMClient, run_id: str) -> bool:
    """Remove a run's role and instance profile; what is gone already is no error.

    Returns:
        Whether there was anything of them.

    Raises:
        KedgeError: IAM doesn't allow it.
    """
    name = role_name(run_id)
    steps: tuple[Callable[[], object], ...] = (
        lambda: iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name),
        lambda: iam.delete_instance_profile(InstanceProfileName=name),
        lambda: iam.delete_role_policy(RoleName=name, PolicyName=_POLICY),
        lambda: iam.delete_role(RoleName=name),
    )
    return _take(steps, "NoSuchEntity", what=f"the role of run {run_id} can't be removed")


def _take(steps: tuple[Callable[[], object], ...], *fine: str, what: str) -> bool:
    """Take steps that another command may have taken already; tell whether any had an effect."""
    taken = 0
    for step in steps:
        try:
            step()
            taken += 1
        except ClientError as err:
            # A profile holds one role: LimitExceeded of the step that adds it says that it is there.
            if code_of(err) not in fine or (
                code_of(err) == "LimitExceeded" and err.operation_name != "AddRoleToInstanceProfile"
            ):
                raise translate(err, what) from err
        except BotoCoreError as err:
            raise translate(err, what) from err
    return taken > 0


def _is_unknown(err: BaseException) -> bool:
    """Tell whether IAM says that there is no such role or profile: it has made it a moment ago."""
    return isinstance(err, ClientError) and code_of(err) == "NoSuchEntity"


def _trust(partition: str) -> Document:
    service = "ec2.amazonaws.com.cn" if partition == "aws-cn" else "ec2.amazonaws.com"
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}
