"""Checks the user's permissions for a launch: IAM simulates the documented policy, or EC2's calls run as dry runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.aws.tags import RUN
from orchestrator.core.checkup import ProbeResult, Verdict

if TYPE_CHECKING:
    from mypy_boto3_iam.type_defs import ContextEntryTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession

_FIX = "have an administrator attach infra/aws/operator-policy.json (docs/aws-permissions.md)"
_FIX_SHARED = (
    "have an administrator attach PowerUserAccess and infra/aws/power-user-policy.json, or "
    "infra/aws/operator-policy.json (docs/aws-permissions.md)"
)
_EXAMPLE = "kedge-doctor"
_OPTIONAL = frozenset({"FirstSpotMachine", "MoveDeadlines", "Doctor", "FindRunSecrets", "RunSecrets"})
"""Statements of the policy that a launch doesn't always need."""
_ROLES_OF_RUNS = frozenset({"MakeRunRoles", "KeepRunRoles"})
"""Statements that nobody needs if all runs share one role."""
_UNTOLD = frozenset({"AccessDenied", "NoSuchEntity", "InvalidInput"})
"""IAM can't simulate this user: simulation isn't allowed, or the user isn't IAM's (a root user, federation)."""
_DENIED = "UnauthorizedOperation"
_ASSUMED = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.+")

_Statement = dict[str, Any]


def look_at_permissions(session: AwsSession, arn: str, account_id: str, *, shared_role: bool) -> ProbeResult:
    """Simulate each statement that a launch needs for a user; if IAM can't, try EC2's calls as dry runs.

    Args:
        session: the account's session.
        arn: the caller's, from STS.
        account_id: the caller's account.
        shared_role: all runs of the account share one role.

    Raises:
        KedgeError: AWS doesn't answer.
    """
    statements, fix = _needed(shared_role=shared_role), _FIX_SHARED if shared_role else _FIX
    try:
        denied = tuple(_simulate(session, statements, _principal(arn), account_id))
    except ClientError as err:
        if code_of(err) not in _UNTOLD:
            raise translate(err, "the permissions can't be simulated") from err
        return _try_dry_runs(session, fix)
    except BotoCoreError as err:
        raise translate(err, "the permissions can't be simulated") from err
    missing = [action for sid, action in denied if sid not in _OPTIONAL]
    if missing:
        return Verdict.FAILED, f"not allowed: {', '.join(dict.fromkeys(missing))}", fix
    if denied:
        return Verdict.WARNING, f"not allowed, and needed sometimes: {', '.join(action for _, action in denied)}", fix
    return Verdict.OK, "all that a launch does is allowed, as IAM simulates it", ""


def _needed(*, shared_role: bool) -> list[_Statement]:
    """Return the statements of the operator's policy that launches of an account need.

    If all runs share one role, nobody creates roles, and only that role and the scheduler's are passed.
    """
    operator = _statements("operator-policy.json")
    if not shared_role:
        return operator
    passes = {each["Sid"]: each for each in _statements("power-user-policy.json") if each["Action"] == "iam:PassRole"}
    return [passes.get(each["Sid"], each) for each in operator if each["Sid"] not in _ROLES_OF_RUNS]


def _statements(name: str) -> list[_Statement]:
    policy = json.loads(resource("infra", "aws", name).read_text(encoding="utf-8"))
    return list(policy["Statement"])


def _simulate(
    session: AwsSession, statements: Sequence[_Statement], principal: str, account_id: str
) -> Iterator[tuple[str, str]]:
    """Yield what isn't allowed, as (statement, action).

    An action counts as allowed if it is allowed for one resource of its statement: not every action applies to every
    resource.
    """
    iam = session.client("iam")
    for statement in statements:
        answers = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=principal,
            ActionNames=_listed(statement["Action"]),
            ResourceArns=[_example_arn(each, session.region, account_id) for each in _listed(statement["Resource"])],
            ContextEntries=list(_context(statement.get("Condition", {}), account_id)),
        )
        allowed: dict[str, bool] = dict.fromkeys(_listed(statement["Action"]), False)
        for answer in answers:
            for result in answer["EvaluationResults"]:
                allowed[result["EvalActionName"]] |= result["EvalDecision"] == "allowed"
        yield from ((statement["Sid"], action) for action, is_allowed in allowed.items() if not is_allowed)


def _principal(arn: str) -> str:
    """Return the principal for the simulation: the role, if the caller has assumed one.

    A role with a path, such as those of SSO, isn't found by this name; then dry runs are used.
    """
    assumed = _ASSUMED.fullmatch(arn)
    return f"arn:{assumed[1]}:iam::{assumed[2]}:role/{assumed[3]}" if assumed else arn


def _example_arn(pattern: str, region: str, account_id: str) -> str:
    """Return one ARN that matches a pattern of the policy; IAM doesn't simulate patterns."""
    if pattern == "*":
        return pattern
    parts = pattern.split(":", 5)
    parts[3] = region if parts[3] == "*" else parts[3]
    parts[4] = account_id if parts[4] == "*" else parts[4]
    return ":".join([*parts[:5], parts[5].replace("*", _EXAMPLE)])


def _context(condition: Mapping[str, Mapping[str, Any]], account_id: str) -> Iterator[ContextEntryTypeDef]:
    """Yield context values that satisfy a condition of the policy."""
    for keys in condition.values():
        for key, wanted in keys.items():
            value = _listed(wanted)[0].replace("${aws:PrincipalAccount}", account_id).replace("*", _EXAMPLE)
            yield {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            if "${aws:PrincipalAccount}" in str(wanted):
                yield {
                    "ContextKeyName": "aws:PrincipalAccount",
                    "ContextKeyValues": [account_id],
                    "ContextKeyType": "string",
                }


def _try_dry_runs(session: AwsSession, fix: str) -> ProbeResult:
    """Try EC2's calls of a launch as dry runs; what other services allow stays unknown."""
    denied = [name for name, code in _dry_runs(session) if code == _DENIED]
    if denied:
        return Verdict.FAILED, f"not allowed, as dry runs show: {', '.join(denied)}", fix
    found = "EC2 allows a launch, as dry runs show; IAM doesn't simulate the rest for this user"
    return Verdict.WARNING, found, "allow iam:SimulatePrincipalPolicy to be told, or see docs/aws-permissions.md"


def _dry_runs(session: AwsSession) -> Iterator[tuple[str, str]]:
    ec2 = session.client("ec2")
    tags = [{"Key": RUN, "Value": _EXAMPLE}]
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (
            "ec2:CreateSecurityGroup",
            "create_security_group",
            {"GroupName": _EXAMPLE, "Description": "a dry run", "TagSpecifications": _tagged("security-group", tags)},
        ),
        (
            "ec2:CreateVolume",
            "create_volume",
            {
                "AvailabilityZone": f"{session.region}a",
                "Size": 1,
                "VolumeType": "gp3",
                "TagSpecifications": _tagged("volume", tags),
            },
        ),
        ("ec2:DescribeInstances", "describe_instances", {}),
        ("ec2:DescribeImages", "describe_images", {"Owners": ["self"]}),
        ("ec2:DescribeSubnets", "describe_subnets", {}),
    )
    for name, call, arguments in calls:
        try:
            getattr(ec2, call)(**arguments, DryRun=True)
        except ClientError as err:
            yield name, code_of(err)
        except BotoCoreError as err:
            raise translate(err, "dry runs can't be made") from err


def _tagged(kind: str, tags: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags}]


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
