"""Who sends a request, by its access key, and what policies they have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.iam.models import Group, IAMBackend, ManagedPolicy, Role, User, iam_backends
from moto.sts.models import sts_backends

from tests.cloudbox.aws.permissions.evaluation import Document
from tests.cloudbox.aws.wire.call import Environ
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

_KEY = re.compile(r"Credential=([^/]+)/")
_PARTITION = "aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A user or an assumed role."""

    arn: str
    policies: tuple[Document, ...]
    boundary: Document | None = None


def access_key(environ: Environ) -> str:
    """Return the access key with which a request was signed; empty for one that isn't."""
    found = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
    return found[1] if found else ""


def find_caller(key: str) -> Caller | None:
    """Find who has an access key; None for nobody, which moto says in the service's own words."""
    iam = iam_backends[ACCOUNT][_PARTITION]
    for user in iam.users.values():
        if any(each.access_key_id == key for each in user.access_keys):
            return Caller(arn=user.arn, policies=_user_policies(iam, user))
    for session in sts_backends[ACCOUNT][_PARTITION].assumed_roles:
        if session.access_key_id == key:
            role = next((role for role in iam.roles.values() if role.arn == session.role_arn), None)
            return _role_caller(iam, role, session.session_name) if role else None
    return None


def find_principal(arn: str) -> Caller | None:
    """Find a user or a role by its ARN, with its policies."""
    iam = iam_backends[ACCOUNT][_PARTITION]
    user = next((user for user in iam.users.values() if user.arn == arn), None)
    if user is not None:
        return Caller(arn=arn, policies=_user_policies(iam, user))
    role = next((role for role in iam.roles.values() if role.arn == arn), None)
    return _role_caller(iam, role, "simulated") if role is not None else None


def _role_caller(iam: IAMBackend, role: Role, session: str) -> Caller:
    boundary = role.permissions_boundary_arn
    return Caller(
        arn=f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.name}/{session}",
        policies=_policies(role),
        boundary=_managed(iam.managed_policies[boundary]) if boundary else None,
    )


def _user_policies(iam: IAMBackend, user: User) -> tuple[Document, ...]:
    groups = (group for group in iam.groups.values() if user in group.users)
    return (*_policies(user), *(policy for group in groups for policy in _policies(group)))


def _policies(holder: User | Group | Role) -> tuple[Document, ...]:
    return (
        *(_parse(text) for text in holder.policies.values()),
        *(_managed(policy) for policy in holder.managed_policies.values()),
    )


def _managed(policy: ManagedPolicy) -> Document:
    return _parse(next(version.document for version in policy.versions if version.is_default))


def _parse(document: Any) -> Document:
    parsed: Mapping[str, Any] = json.loads(document) if isinstance(document, str) else document
    return parsed
