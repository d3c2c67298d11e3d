"""What calls of IAM need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moto.iam.models import IAMBackend, InstanceProfile, iam_backends

from tests.cloudbox.aws.permissions.evaluation import Need
from tests.cloudbox.aws.wire.call import Call
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

_SPOT = "spot.amazonaws.com"
_SERVICE_ROLES = {_SPOT: "AWSServiceRoleForEC2Spot"}
_MADE = {"CreateRole": "iam:TagRole", "CreateInstanceProfile": "iam:TagInstanceProfile"}
_UNDER_BOUNDARY = ("AttachRolePolicy", "DeleteRolePolicy", "DetachRolePolicy", "PutRolePolicy")
"""Actions that have the condition key iam:PermissionsBoundary, of the role that is there."""


def iam_needs(call: Call) -> Iterator[Need]:
    """List what a call of IAM needs: for what it names, the right to tag it, and to hand on its role."""
    resource, context = _resource(call), _context(call)
    yield Need(action=f"iam:{call.action}", resource=resource, context=context)
    if call.action in _MADE and "Tags.member.1.Key" in call.params:
        # fact: iam-tag-on-create.
        yield Need(action=_MADE[call.action], resource=resource, context=context)
    if call.action == "AddRoleToInstanceProfile":
        # fact: iam-profile-passes-role.
        yield pass_role(role_arn(call.params["RoleName"]), "ec2.amazonaws.com")


def pass_role(role: str, service: str) -> Need:
    """Return the right to hand a role to a service."""
    return Need(action="iam:PassRole", resource=role, context={"iam:PassedToService": service})


def role_arn(name: str) -> str:
    """Return a role's ARN; that of one which isn't there has no path. fact: iam-missing-no-path."""
    found = next((role for role in _iam().roles.values() if role.name == name), None)
    return found.arn if found else f"arn:aws:iam::{ACCOUNT}:role/{name}"


def find_profile(name: str) -> InstanceProfile | None:
    """Find an instance profile by its name."""
    return next((each for each in _iam().instance_profiles.values() if each.name == name), None)


def has_spot_role() -> bool:
    """Tell whether the account has the role that AWS needs for spot machines. fact: spot-linked-role."""
    return any(f"/{_SPOT}/" in role.arn for role in _iam().roles.values())


def make_spot_role() -> None:
    """Make that role, as AWS does for the account's first spot machine."""
    _iam().create_service_linked_role(_SPOT, "", "")


def spot_role() -> Need:
    """Return the right to have AWS make it."""
    return Need(
        action="iam:CreateServiceLinkedRole",
        resource=f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{_SPOT}/{_SERVICE_ROLES[_SPOT]}",
        context={"iam:AWSServiceName": _SPOT},
    )


def _resource(call: Call) -> str:
    params, path = call.params, str(call.params.get("Path", "/"))
    account = f"arn:aws:iam::{ACCOUNT}"
    if "PolicyArn" in params and "RoleName" not in params:
        return str(params["PolicyArn"])
    if call.action == "SimulatePrincipalPolicy":
        return str(params["PolicySourceArn"])
    if call.action == "CreateServiceLinkedRole":
        service = params["AWSServiceName"]
        return f"{account}:role/aws-service-role/{service}/{_SERVICE_ROLES.get(service, '*')}"
    if name := params.get("InstanceProfileName"):
        profile = find_profile(name)
        made = path if call.action == "CreateInstanceProfile" else "/"
        return str(profile.arn) if profile else f"{account}:instance-profile{made}{name}"
    if name := params.get("RoleName"):
        return f"{account}:role{path}{name}" if call.action == "CreateRole" else role_arn(name)
    return f"{account}:user/{params['UserName']}" if "UserName" in params else "*"


def _context(call: Call) -> Mapping[str, str]:
    if call.action == "CreateServiceLinkedRole":
        return {"iam:AWSServiceName": call.params["AWSServiceName"]}
    boundary = call.params.get("PermissionsBoundary")
    if call.action in _UNDER_BOUNDARY:
        role = next((role for role in _iam().roles.values() if role.name == call.params["RoleName"]), None)
        boundary = role.permissions_boundary_arn if role else None
    return {"iam:PermissionsBoundary": boundary} if boundary else {}


def _iam() -> IAMBackend:
    return iam_backends[ACCOUNT]["aws"]
