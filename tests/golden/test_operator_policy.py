"""infra/aws/operator-policy.json: what IAM would say of it, before anybody attaches it."""

from __future__ import annotations

import json

from orchestrator.adapters.resources import resource

_MOST_CHARACTERS = 6144


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
