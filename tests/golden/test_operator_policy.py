"""The policies in infra/aws: what IAM would say of them, before anybody attaches one, and the page about them."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator.adapters.host.resources import resource
from tests.cloudbox.aws.operators import operator_policy, power_user_policy
from tests.cloudbox.aws.permissions.evaluation import Need, allows

_MOST_CHARACTERS = 6144
_IAM = "arn:aws:iam::123456789012"
_EC2 = "arn:aws:ec2:us-east-1:123456789012"
_RUN_ROLE = f"{_IAM}:role/kedge/kedge-run-digits-1"
_SCHEDULER = f"{_IAM}:role/kedge/kedge-scheduler"
_ADMIN = f"{_IAM}:role/admin"
_BOUNDARY = {"iam:PermissionsBoundary": f"{_IAM}:policy/kedge-run-boundary"}
_NO_LIMIT = {"iam:PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}
_TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}
_TO_SCHEDULER = {"iam:PassedToService": "scheduler.amazonaws.com"}
_TO_LAMBDA = {"iam:PassedToService": "lambda.amazonaws.com"}
_OURS = {"aws:ResourceAccount": "123456789012", "aws:PrincipalAccount": "123456789012"}
_THEIRS = {**_OURS, "aws:ResourceAccount": "210987654321"}
_OF_A_RUN = {"aws:ResourceTag/kedge-run": "digits-1"}
_DOCS = Path(__file__).parents[2] / "docs"


def test_the_policy_fits_a_managed_policy() -> None:
    """IAM counts characters without white space. fact: iam-policy-size."""
    text = resource("infra", "aws", "operator-policy.json").read_text()
    assert len("".join(text.split())) <= _MOST_CHARACTERS


def test_each_statement_allows_something_and_has_a_name_of_its_own() -> None:
    """A Sid is letters and digits. fact: iam-sid."""
    statements = json.loads(resource("infra", "aws", "operator-policy.json").read_text())["Statement"]
    names = [statement["Sid"] for statement in statements]
    assert len(set(names)) == len(names)
    for statement in statements:
        assert statement["Sid"].isalnum()
        assert statement["Effect"] == "Allow"
        assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}


@pytest.mark.parametrize(
    ("action", "allowed", "denied"),
    [
        (
            "iam:CreateRole",
            (_RUN_ROLE, _BOUNDARY),
            [
                (_RUN_ROLE, {}),
                (_RUN_ROLE, _NO_LIMIT),
                (f"{_IAM}:role/kedge-run-digits-1", _BOUNDARY),
                (_SCHEDULER, _BOUNDARY),
                (_ADMIN, _BOUNDARY),
            ],
        ),
        ("iam:PutRolePolicy", (_RUN_ROLE, _BOUNDARY), [(_RUN_ROLE, {}), (_RUN_ROLE, _NO_LIMIT), (_ADMIN, _BOUNDARY)]),
        ("iam:DeleteRole", (_RUN_ROLE, {}), [(_SCHEDULER, {}), (_ADMIN, {})]),
        (
            "iam:PassRole",
            (_RUN_ROLE, _TO_EC2),
            [(_RUN_ROLE, {}), (_RUN_ROLE, _TO_LAMBDA), (_RUN_ROLE, _TO_SCHEDULER), (_ADMIN, _TO_EC2)],
        ),
        (
            "iam:PassRole",
            (_SCHEDULER, _TO_SCHEDULER),
            [(_SCHEDULER, {}), (_SCHEDULER, _TO_LAMBDA), (_SCHEDULER, _TO_EC2), (_ADMIN, _TO_SCHEDULER)],
        ),
        (
            "ec2:RunInstances",
            (f"{_EC2}:instance/*", {"aws:RequestTag/kedge-run": "digits-1"}),
            [(f"{_EC2}:instance/*", {})],
        ),
        (
            "ec2:CreateTags",
            (f"{_EC2}:instance/i-1", {"ec2:CreateAction": "RunInstances"}),
            [(f"{_EC2}:instance/i-1", {}), (f"{_EC2}:volume/vol-1", {})],
        ),
        (
            "ec2:CreateTags",
            (
                f"{_EC2}:instance/i-1",
                {"aws:ResourceTag/kedge-machine": "digits-1-m1", "aws:TagKeys": "kedge-deadline"},
            ),
            [
                (f"{_EC2}:instance/i-1", {"aws:ResourceTag/Name": "web", "aws:TagKeys": "kedge-deadline"}),
                (f"{_EC2}:instance/i-1", {"aws:ResourceTag/kedge-machine": "digits-1-m1", "aws:TagKeys": "kedge-run"}),
                (f"{_EC2}:volume/vol-1", {"aws:ResourceTag/kedge-machine": "m", "aws:TagKeys": "kedge-deadline"}),
            ],
        ),
        (
            "ec2:TerminateInstances",
            (f"{_EC2}:instance/i-1", {"aws:ResourceTag/kedge-machine": "digits-1-m1"}),
            [(f"{_EC2}:instance/i-1", {}), (f"{_EC2}:instance/i-1", {"aws:ResourceTag/Name": "web"})],
        ),
        (
            "ec2:AttachVolume",
            (f"{_EC2}:volume/vol-1", {"aws:ResourceTag/kedge-volume": "scans"}),
            [(f"{_EC2}:volume/vol-1", {}), (f"{_EC2}:instance/i-1", {})],
        ),
        (
            "ec2:DeleteVolume",
            (f"{_EC2}:volume/vol-1", {"aws:ResourceTag/kedge-created": "2026-11-21"}),
            [(f"{_EC2}:volume/vol-1", {}), (f"{_EC2}:volume/vol-1", {"aws:ResourceTag/kedge-volume": "scans"})],
        ),
        (
            "ec2:AuthorizeSecurityGroupIngress",
            (f"{_EC2}:security-group/sg-1", _OF_A_RUN),
            [(f"{_EC2}:security-group/sg-1", {})],
        ),
        ("ec2:DeleteSecurityGroup", (f"{_EC2}:security-group/sg-1", _OF_A_RUN), [(f"{_EC2}:security-group/sg-1", {})]),
        (
            "s3:PutObject",
            ("arn:aws:s3:::kedge-123456789012-us-east-1/runs/x", _OURS),
            [("arn:aws:s3:::kedge-123456789012-us-east-1/runs/x", _THEIRS), ("arn:aws:s3:::payroll/x", _OURS)],
        ),
    ],
)
def test_an_operator_may_do_nothing_beside_it(
    action: str, allowed: tuple[str, Mapping[str, str]], denied: Sequence[tuple[str, Mapping[str, str]]]
) -> None:
    """Each call is allowed for what is kedge's, and denied where a tag, a boundary, a path or a service is another."""
    policy = operator_policy()
    assert allows([policy], None, Need(action=action, resource=allowed[0], context=allowed[1]))
    for arn, context in denied:
        assert not allows([policy], None, Need(action=action, resource=arn, context=context)), (arn, context)


def test_a_power_user_hands_on_the_two_roles_of_kedge_and_no_other() -> None:
    """To the service that each is for: PowerUserAccess itself hands on none."""
    policy = power_user_policy()

    def may_pass(role: str, to: Mapping[str, str]) -> bool:
        return allows([policy], None, Need(action="iam:PassRole", resource=role, context=to))

    shared = f"{_IAM}:role/kedge/kedge-runs"
    assert may_pass(shared, _TO_EC2)
    assert may_pass(_SCHEDULER, _TO_SCHEDULER)
    assert not any(may_pass(role, to) for role in (shared, _SCHEDULER) for to in ({}, _TO_LAMBDA))
    assert not any(may_pass(role, to) for role in (_ADMIN, _RUN_ROLE) for to in (_TO_EC2, _TO_SCHEDULER))


def test_the_page_says_what_the_policies_say() -> None:
    """docs/aws-permissions.md is what docs/write_permissions.py writes, with a purpose for each statement."""
    written = runpy.run_path(str(_DOCS / "write_permissions.py"))
    assert (_DOCS / "aws-permissions.md").read_text() == written["render_page"]()
    statements = json.loads(resource("infra", "aws", "operator-policy.json").read_text())["Statement"]
    assert set(written["PURPOSES"]) == {statement["Sid"] for statement in statements}
    assert set(written["LEFT_OUT"]) <= set(written["PURPOSES"])
