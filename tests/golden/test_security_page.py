"""docs/security.md: each "cannot" names a test that tries the attack, and each test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
POLICY = ROOT / "SECURITY.md"
_NAMED = re.compile(r"`(tests/[\w./-]+\.py)::(\w+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def named() -> list[tuple[str, str]]:
    """Return file and function of each test that the page names."""
    return sorted(set(_NAMED.findall(PAGE.read_text())))


def parties() -> dict[str, str]:
    """Return what the page says of each of those whom it names, by heading."""
    text = PAGE.read_text().partition("\n## Who is trusted with what\n")[2].partition("\n## ")[0]
    _, *sections = re.split(r"^### ", text, flags=re.MULTILINE)
    return {section.partition("\n")[0]: section.partition("\n")[2] for section in sections}


def cells(section: str) -> list[list[str]]:
    """Return the rows of the section's table, its head and rule apart."""
    table = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]
    assert rows[0] == ["cannot", "test"], rows[0]
    return rows[2:]


@cache
def found_in(path: str) -> frozenset[str]:
    """Return the tests that pytest finds in a file; none where there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def anchors(path: Path) -> set[str]:
    """Return what GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_test_that_the_page_names_is_there_and_runs_by_itself() -> None:
    """A test that is renamed or removed takes its claim with it; those of tests/live have to be asked for."""
    assert len(named()) > 100
    assert [f"{path}::{name}" for path, name in named() if name not in found_in(path)] == []
    assert [path for path, _name in named() if path.startswith("tests/live/")] == []


def test_each_of_those_who_are_trusted_has_its_limits_and_each_limit_its_test() -> None:
    """What they are trusted with, what they could still do, and a test of its own for each thing that they cannot."""
    assert len(parties()) >= 12
    for party, section in parties().items():
        assert "**Trusted with**" in section, party
        assert "**Could still:**" in section, party
        assert cells(section), party
        for claim, tests in cells(section):
            assert claim, party
            assert _NAMED.search(tests), f"{party}: cannot {claim}"


def test_each_table_of_secrets_names_the_tests_that_looked_for_them() -> None:
    """Those of secrets; what is none has no test."""
    text = PAGE.read_text().partition("\n## Where each secret lives\n")[2].partition("\n## ")[0]
    _, *kinds = re.split(r"^### ", text, flags=re.MULTILINE)
    assert len(kinds) >= 4
    for kind in kinds:
        assert kind.startswith("Not secrets") or _NAMED.search(kind), kind.partition("\n")[0]


@pytest.mark.parametrize("page", [PAGE, POLICY], ids=lambda page: page.name)
def test_its_links_lead_somewhere(page: Path) -> None:
    """Files of this repository, and headings of the page itself."""
    found = _LINK.findall(page.read_text())
    assert found
    for target, _anchor in found:
        assert (page.parent / target).exists(), target
    inner = re.findall(r"\]\(#([^)]+)\)", page.read_text())
    assert set(inner) <= anchors(page)


def test_readers_find_both_pages() -> None:
    """From the README, and from each other."""
    assert "](docs/security.md)" in (ROOT / "README.md").read_text()
    assert "](SECURITY.md)" in (ROOT / "README.md").read_text()
    assert "](docs/security.md)" in POLICY.read_text()
    assert "](../SECURITY.md)" in PAGE.read_text()
