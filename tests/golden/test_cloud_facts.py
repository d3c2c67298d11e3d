"""docs/cloud-facts.md: each row has a source and is enforced, and code refers to rows that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cloud-facts.md"
PRODUCT = ("orchestrator", "templates", "trainer", "infra")
_HEADER = ("id", "fact", "source", "sure", "enforced by")
_MENTION = re.compile(r"\b(fact|inferred): ([a-z0-9][a-z0-9-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the page."""

    id: str
    fact: str
    source: str
    sure: str
    enforced_by: str


def rows() -> list[Row]:
    cells = [_cells(line) for line in PAGE.read_text().splitlines() if line.startswith("|")]
    content = [row for row in cells if row != _HEADER and not set("".join(row)) <= set("-")]
    assert all(len(row) == len(_HEADER) for row in content), [row for row in content if len(row) != len(_HEADER)]
    return [Row(id=row[0], fact=row[1], source=row[2], sure=row[3], enforced_by=row[4]) for row in content]


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])


def mentions(*folders: str) -> Iterator[tuple[str, str, Path]]:
    """Yield the kind (fact or inferred), the id and the file of each mention."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in (".py", ".j2", ".sh", ".yaml", ".json") and path != Path(__file__):
                for kind, name in _MENTION.findall(path.read_text(errors="replace")):
                    yield kind, name, path


def test_every_row_has_a_unique_id_a_fact_a_source_and_a_certainty() -> None:
    """A fact without a source is a guess, and is called one."""
    ids = [row.id for row in rows()]
    assert len(ids) == len(set(ids)), sorted(name for name in ids if ids.count(name) > 1)
    for row in rows():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", row.id), row
        assert row.fact, row
        assert row.source, row
        assert row.sure in ("documented", "seen", "inferred"), row


def test_every_row_is_enforced_by_a_rule_or_a_test_that_names_it() -> None:
    """The file is there, it defines what the row names, and it refers back to the row."""
    named = {(name, path) for _, name, path in mentions("tests")}
    for row in rows():
        path, _, definition = row.enforced_by.partition("::")
        file = ROOT / path
        assert file.is_file(), row
        assert path.startswith("tests/"), row
        assert not definition or re.search(rf"\b{re.escape(definition)}\b", file.read_text()), row
        assert (row.id, file) in named, f"{path} doesn't mention 'fact: {row.id}'"


def test_code_and_boxes_refer_to_rows_that_are_there() -> None:
    """A row that is renamed or removed takes its references with it."""
    ids = {row.id for row in rows()}
    assert not [(name, str(path)) for _, name, path in mentions(*PRODUCT, "tests") if name not in ids]


def test_code_that_relies_on_what_is_only_inferred_says_so() -> None:
    """And only that: a row that has become sure is no longer marked."""
    marked = {name for kind, name, _ in mentions(*PRODUCT) if kind == "inferred"}
    assert marked == {row.id for row in rows() if row.sure == "inferred"}
