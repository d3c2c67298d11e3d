"""Refuses what a caller's policies don't allow, as each service words it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.cloudbox.aws.permissions.callers import Caller, access_key, find_caller
from tests.cloudbox.aws.permissions.evaluation import Need, allows
from tests.cloudbox.aws.permissions.iam_needs import has_spot_role, make_spot_role
from tests.cloudbox.aws.permissions.needs import needs_of
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call, Environ

_ALWAYS = frozenset({"GetCallerIdentity", "GetSessionToken"})
"""Of STS; nobody needs a permission for them. fact: sts-identity-is-free."""

_QUERY = frozenset({"iam", "sts", "cloudformation", "s3"})
"""Services that say AccessDenied, with status 403."""


def check(call: Call, environ: Environ) -> list[dict[str, Any]]:
    """Check one call, and return what it needs.

    Raises:
        AwsError: some permission isn't there.
    """
    caller = find_caller(access_key(environ))
    if caller is None or (call.service == "sts" and call.action in _ALWAYS):
        return []
    needs = needs_of(call, environ)
    for need in needs:
        if not allows(caller.policies, caller.boundary, need):
            raise refusal(call, caller, need)
    if call.spot and not has_spot_role():
        make_spot_role()
    return [asdict(need) for need in needs]


def refusal(call: Call, caller: Caller, need: Need) -> AwsError:
    """Word a refusal. fact: iam-denial-codes."""
    said = (
        f"User: {caller.arn} is not authorized to perform: {need.action} on resource: {need.resource} "
        f"because no identity-based policy allows the {need.action} action"
    )
    if call.service == "ec2" and need.action == "iam:CreateServiceLinkedRole":
        spot = "the service-linked role for EC2 Spot Instances"
        message = f"The provided credentials do not have permission to create {spot}."
        return AwsError("AuthFailure.ServiceLinkedRoleCreationNotPermitted", message, 403)
    if call.service == "ec2":
        encoded = "Encoded authorization failure message: 4fVeryLong"
        return AwsError(
            "UnauthorizedOperation", f"You are not authorized to perform this operation. {said}. {encoded}", 403
        )
    if call.service in _QUERY:
        return AwsError("AccessDenied", said, 403)
    return AwsError("AccessDeniedException", said, 403 if call.service == "scheduler" else 400)
