"""The policies in infra/aws: what IAM would say of them, before anybody attaches one, and the page about them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from orchestrator.adapters.resources import resource

_MOST_CHARACTERS = 6144
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


def test_the_page_says_what_the_policies_say() -> None:
    """docs/aws-permissions.md is what docs/write_permissions.py writes, with a purpose for each statement."""
    written = runpy.run_path(str(_DOCS / "write_permissions.py"))
    assert (_DOCS / "aws-permissions.md").read_text() == written["render_page"]()
    statements = json.loads(resource("infra", "aws", "operator-policy.json").read_text())["Statement"]
    assert set(written["PURPOSES"]) == {statement["Sid"] for statement in statements}
    assert set(written["LEFT_OUT"]) <= set(written["PURPOSES"])
