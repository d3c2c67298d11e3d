"""Who may do what: the box's operator, roles of instances, and whether IAM is enforced at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from math import inf

from botocore.awsrequest import AWSRequest
from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.core.utils import utcnow
from moto.ec2.models.instances import Instance
from moto.iam import models
from moto.iam.access_control import IAMRequestBase
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.exceptions import NotFoundException
from moto.iam.models import IAMBackend, Role, iam_backends
from moto.sts.models import AssumedRole, sts_backends

from tests.cloudbox.aws.wire.credentials import OPERATOR_KEY, OPERATOR_SECRET
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

_KNOWN = re.compile(r"Amazon(EC2|S3|SSM|EventBridge)|(Administrator|PowerUser|ReadOnly)Access$")
_PARTITION = "aws"
_OPERATOR = "operator"
_EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_SESSION = timedelta(hours=6)
_RENEW_BEFORE = timedelta(minutes=15)


def keep_few_managed_policies() -> None:
    """Have moto know those of AWS's policies that concern machines; reading all 1,600 takes seconds after a reset."""
    known = json.loads(aws_managed_policies_data)
    few = json.dumps({name: policy for name, policy in known.items() if _KNOWN.match(name)})
    models.aws_managed_policies_data = few  # type: ignore[attr-defined]


def enforce(enforced: bool) -> None:
    """Check signatures from now on, or not; the gate asks `is_enforced`, and has policies evaluated (permissions/)."""
    if enforced:
        _make_operator()
    settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if enforced else inf
    ActionAuthenticatorMixin.request_count = 0


def is_enforced() -> bool:
    """Tell whether policies are enforced."""
    return settings.INITIAL_NO_AUTH_ACTION_COUNT == 0


def mend_moto() -> None:
    """Have moto check signatures and nothing else, also where there is a query, which it takes for a body.

    It also fails where a profile doesn't have the role that is to be removed from it: AWS says NoSuchEntity.
    """
    IAMRequestBase.check_action_permitted = lambda *_: None  # type: ignore[method-assign]
    sign = IAMRequestBase._create_aws_request

    def sign_rightly(request: IAMRequestBase) -> AWSRequest:
        if request._method != "POST":
            request._data = {}
        return sign(request)

    IAMRequestBase._create_aws_request = sign_rightly  # type: ignore[assignment, method-assign]
    remove_role = IAMBackend.remove_role_from_instance_profile

    def remove_present_role(iam: IAMBackend, profile_name: str, role_name: str) -> None:
        if not any(role.name == role_name for role in iam.get_instance_profile(profile_name).roles):
            raise NotFoundException(f"Role {role_name} is not in instance profile {profile_name}")
        remove_role(iam, profile_name, role_name)

    IAMBackend.remove_role_from_instance_profile = remove_present_role  # type: ignore[assignment, method-assign]


def find_role(arn: str) -> Role | None:
    """Find a role by its ARN."""
    return next((role for role in _iam().roles.values() if role.arn == arn), None)


class InstanceCredentials:
    """Credentials of an instance's role, for its metadata service; renewed before they end."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._session: AssumedRole | None = None

    def __call__(self) -> Mapping[str, str] | None:
        """Return the credentials as the metadata service shows them; None without a role."""
        role = self._role()
        if role is None:
            return None
        if not self._session or self._session.role_arn != role.arn or _ends_soon(self._session.expiration):
            self._session = self._assume(role)
        return {
            "RoleName": role.name,
            "AccessKeyId": self._session.access_key_id,
            "SecretAccessKey": self._session.secret_access_key,
            "Token": self._session.session_token,
            "Expiration": self._session.expiration.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _role(self) -> Role | None:
        associations = self._instance.ec2_backend.iam_instance_profile_associations
        found = associations.get(self._instance.id)
        roles = found.iam_instance_profile.roles if found else []
        return roles[0] if roles else None

    def _assume(self, role: Role) -> AssumedRole:
        return sts_backends[ACCOUNT][_PARTITION].assume_role(
            region_name=self._instance.region_name,
            role_session_name=self._instance.id,
            role_arn=role.arn,
            policy="",
            duration=int(_SESSION.total_seconds()),
            external_id="",
        )


def _iam() -> IAMBackend:
    return iam_backends[ACCOUNT][_PARTITION]


def _ends_soon(expiration: datetime) -> bool:
    return expiration - utcnow() < _RENEW_BEFORE


def _make_operator() -> None:
    iam = _iam()
    if _OPERATOR in iam.users:
        return
    iam.create_user("us-east-1", _OPERATOR)
    iam.put_user_policy(_OPERATOR, "everything", json.dumps(_EVERYTHING))
    key = iam.create_access_key(_OPERATOR)
    del iam.access_keys[key.physical_resource_id]
    # The key that every box's environment has: clients go on working when IAM is switched on.
    key.access_key_id, key.secret_access_key = OPERATOR_KEY, OPERATOR_SECRET
    iam.access_keys[OPERATOR_KEY] = key
