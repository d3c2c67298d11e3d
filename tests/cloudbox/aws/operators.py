"""People with an account's keys who aren't its administrators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.adapters.host.resources import resource
from tests.cloudbox.aws.box import Box

Policy = dict[str, Any]


def operator_policy(*, without: str = "") -> Policy:
    """Return the documented policy, or what is left of it without one statement or one action."""
    policy: Policy = json.loads(resource("infra", "aws", "operator-policy.json").read_text())
    for statement in policy["Statement"]:
        statement["Action"] = listed(statement["Action"])
    statements = [_without(statement, without) for statement in policy["Statement"] if statement["Sid"] != without]
    assert not without or statements != policy["Statement"], f"there is no {without}"
    return {**policy, "Statement": statements}


def listed(value: str | list[str]) -> list[str]:
    """Return an element of a statement, which may be one value, as a list."""
    return [value] if isinstance(value, str) else value


def _without(statement: Policy, action: str) -> Policy:
    return {**statement, "Action": [each for each in listed(statement["Action"]) if each != action]}


POWER_USER = "arn:aws:iam::aws:policy/PowerUserAccess"
"""A policy of AWS's: everything but IAM, beside some of its lists."""


def power_user_policy() -> Policy:
    """Return what a power user needs beside PowerUserAccess, where all runs have one role."""
    policy: Policy = json.loads(resource("infra", "aws", "power-user-policy.json").read_text())
    return policy


def make_operator(box: Box, policy: Policy, *more: str) -> Mapping[str, str]:
    """Make a user with exactly one policy, as a managed one, and perhaps some of AWS's, by their ARNs.

    Returns:
        The variables with which a shell is that user.
    """
    iam = box.client("iam")
    made = iam.create_policy(PolicyName="kedge-operator", PolicyDocument=json.dumps(policy))["Policy"]
    iam.create_user(UserName="ada")
    for arn in (made["Arn"], *more):
        iam.attach_user_policy(UserName="ada", PolicyArn=arn)
    key = iam.create_access_key(UserName="ada")["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
