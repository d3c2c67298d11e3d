"""Laptop and machine merge what several machines have written in the same way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.results.entries import Entry
from orchestrator.agent.results.parts import choose_parts
from orchestrator.core.protocol.parts import divide
from orchestrator.core.protocol.results import ResultFile

PATHS = st.lists(st.sampled_from(("a", "b", "c")), min_size=1, max_size=3).map("/".join)
LISTS = st.dictionaries(st.integers(0, 3), st.dictionaries(PATHS, st.sampled_from(("x", "y")), max_size=5), max_size=4)


@given(LISTS)
def test_a_machine_copies_what_comes_home_at_the_same_path(lists: dict[int, dict[str, str]]) -> None:
    """The laptop puts other contents of a path apart; a machine needs only the one that counts."""
    on_machine = choose_parts(
        {rank: [Entry(path, 1, sha256, 0.0, "") for path, sha256 in files.items()] for rank, files in lists.items()}
    )
    at_home = divide(
        {
            rank: [ResultFile(path=path, bytes=1, sha256=sha) for path, sha in files.items()]
            for rank, files in lists.items()
        }
    )
    expected = {file.path: (rank, file.sha256) for rank, part in at_home.items() for file in part.files}
    assert {path: (rank, entry.sha256) for path, (rank, entry) in on_machine.items()} == expected
