"""The cases themselves: how many there are, and that each says something else."""

from __future__ import annotations

from collections import Counter

from tests.plans.cases import FOLDER, read_cases

ASKED_FOR = 150
"""So many at least: what is planned, reaped, offered and recovered is to be read here, not in code."""


def test_there_are_enough_cases_and_no_two_say_the_same() -> None:
    """A sentence that stands twice hides one of two cases from whoever looks for it."""
    names = [case.id for path in FOLDER.glob("*.yaml") for case in read_cases(path.stem)]
    counts = Counter(name.partition(":")[0] for name in names)
    print(f"{len(names)} cases: {dict(counts)}")
    assert len(names) >= ASKED_FOR
    assert [name for name, count in Counter(names).items() if count > 1] == []
