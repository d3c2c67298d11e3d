"""What moto finds out anew for each call or each account, found out once: a third of the box's CPU time."""

from __future__ import annotations

import copy
from functools import cache

from moto import backends
from moto.core import responses, utils
from moto.iam.models import IAMBackend, ManagedPolicy
from moto.kms import models
from moto.kms.utils import generate_private_key


def remember_constants() -> None:
    """Remember moto's own folders and methods; and the key that encrypts no disk here, once per kind of key."""
    if isinstance(backends.list_of_moto_modules(), tuple):
        return
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    responses.method_names_from_class = cache(utils.method_names_from_class)  # type: ignore[attr-defined]
    models.generate_private_key = cache(generate_private_key)  # type: ignore[attr-defined]


def remember_policies() -> None:
    """Read AWS's own policies once, and give each new account its own copies."""
    read = IAMBackend._init_aws_policies
    known: dict[tuple[str, str], list[ManagedPolicy]] = {}

    def copy_policies(iam: IAMBackend) -> list[ManagedPolicy]:
        place = (iam.account_id, iam.region_name)
        if place not in known:
            known[place] = read(iam)
        return [_copy_policy(policy) for policy in known[place]]

    IAMBackend._init_aws_policies = copy_policies  # type: ignore[assignment, method-assign]


def _copy_policy(policy: ManagedPolicy) -> ManagedPolicy:
    own = copy.copy(policy)
    own.versions, own.tags = list(policy.versions), dict(policy.tags)
    return own
