"""What a call needs: each action with each resource, and the condition keys that it has.

Service Authorization Reference, "Actions, resources, and condition keys" for each service (November 2026). A call that
makes something tagged needs the permission to tag as well, and one that hands a role on needs iam:PassRole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from tests.cloudbox.aws.permissions.ec2_needs import ec2_needs
from tests.cloudbox.aws.permissions.evaluation import Need
from tests.cloudbox.aws.permissions.iam_needs import iam_needs, pass_role
from tests.cloudbox.aws.wire.call import Call, Environ
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

_S3_ACTIONS = {
    "HeadBucket": "ListBucket",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListBuckets": "ListAllMyBuckets",
    "HeadObject": "GetObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "ListParts": "ListMultipartUploadParts",
    "DeleteObjects": "DeleteObject",
}
"""Operations whose permission is called otherwise."""


def needs_of(call: Call, environ: Environ) -> list[Need]:
    """List the permissions that a call takes; all must be there."""
    shared = {"aws:PrincipalAccount": ACCOUNT, "aws:ResourceAccount": ACCOUNT, "aws:RequestedRegion": call.region}
    if call.service == "s3":
        found = iter([_s3_need(call, environ)])
    else:
        found = _SERVICES.get(call.service, _without_resource)(call)
    return [Need(action=each.action, resource=each.resource, context={**shared, **each.context}) for each in found]


def _without_resource(call: Call) -> Iterator[Need]:
    yield Need(action=f"{call.service}:{call.action}")


def _s3_need(call: Call, environ: Environ) -> Need:
    """Name the bucket, or the object. Of DeleteObjects the keys aren't read: it needs all of the bucket's objects."""
    bucket, key = call.params.get("Bucket", ""), call.params.get("Key", "")
    name = _S3_ACTIONS.get(call.action, call.action)
    prefix = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True).get("prefix")
    if call.action == "DeleteObjects":
        key = "*"
    return Need(
        action=f"s3:{name}",
        resource=f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}" if bucket else "*",
        context={"s3:prefix": prefix[0]} if prefix else {},
    )


def _scheduler_needs(call: Call) -> Iterator[Need]:
    if call.action == "ListSchedules":
        yield from _without_resource(call)
        return
    group, name = call.params.get("GroupName", "default"), call.params.get("Name", "")
    arn = f"arn:aws:scheduler:{call.region}:{ACCOUNT}:schedule/{group}/{name}"
    yield Need(action=f"scheduler:{call.action}", resource=arn)
    target: Mapping[str, Any] = call.params.get("Target") or {}
    if "RoleArn" in target:
        yield pass_role(target["RoleArn"], "scheduler.amazonaws.com")


def _cloudformation_needs(call: Call) -> Iterator[Need]:
    """Name the stack, which a request gives by its name, its ARN, or the ARN of one of its change sets."""
    name = str(call.params.get("StackName") or call.params.get("ChangeSetName", ""))
    arn = name if ":stack/" in name else f"arn:aws:cloudformation:{call.region}:{ACCOUNT}:stack/{name}/*"
    yield Need(action=f"cloudformation:{call.action}", resource=arn)


def _ssm_needs(call: Call) -> Iterator[Need]:
    """Name each parameter; AWS's own ones are of no account. Tags are those of a name with two slashes.

    fact: ssm-public-parameters, fact: ssm-permissions
    """
    if call.action == "DescribeParameters":
        yield from _without_resource(call)
        return
    named = call.params.get("Names") or [call.params.get("Name", "")]
    for name in (str(each).removeprefix("/") for each in named):
        is_public = name.startswith("aws/service/")
        arn = f"arn:aws:ssm:{call.region}:{'' if is_public else ACCOUNT}:parameter/{name}"
        yield Need(action=f"ssm:{call.action}", resource=arn)
        if call.params.get("Tags"):
            yield Need(action="ssm:AddTagsToResource", resource=arn.replace("parameter/", "parameter//"))
        if call.params.get("WithDecryption") and not is_public:
            yield _decryption(call.region, arn)


def _decryption(region: str, parameter: str) -> Need:
    """Need the caller's own policies to allow it, although the default key's policy does.

    fact: ssm-key-under-boundary, fact: ssm-encryption-context
    """
    context = {"kms:ViaService": f"ssm.{region}.amazonaws.com", "kms:EncryptionContext:PARAMETER_ARN": parameter}
    return Need(action="kms:Decrypt", resource=f"arn:aws:kms:{region}:{ACCOUNT}:key/default-of-ssm", context=context)


def _budget_needs(call: Call) -> Iterator[Need]:
    """Everything that reads a budget is budgets:ViewBudget, everything that changes one budgets:ModifyBudget.

    fact: budgets-two-permissions.
    """
    action = "ViewBudget" if call.action.startswith("Describe") else "ModifyBudget"
    name = call.params.get("BudgetName") or call.params.get("Budget", {}).get("BudgetName", "*")
    yield Need(action=f"budgets:{action}", resource=f"arn:aws:budgets::{ACCOUNT}:budget/{name}")


_SERVICES: Mapping[str, Callable[[Call], Iterator[Need]]] = {
    "ec2": ec2_needs,
    "iam": iam_needs,
    "scheduler": _scheduler_needs,
    "cloudformation": _cloudformation_needs,
    "ssm": _ssm_needs,
    "budgets": _budget_needs,
}
