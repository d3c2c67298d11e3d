"""Results of several machines become one tree, whatever their lists say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.protocol.parts import divide, folder_of
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import RENAMED, upper_folders

PATHS = st.lists(st.sampled_from(("a", "b", "nodes", "1")), min_size=1, max_size=3).map("/".join)
LISTS = st.dictionaries(
    st.integers(0, 3), st.dictionaries(PATHS, st.sampled_from(("", "x", "y")), max_size=5), max_size=4
)


def file(path: str, content: str = "x", link: str = "") -> ResultFile:
    return ResultFile(path=path, bytes=1, sha256=content, link=link)


def as_tree(files: dict[str, str]) -> list[ResultFile]:
    """Leave out what lies below a file, as on a machine's disk."""
    return [file(path, content) for path, content in files.items() if not set(upper_folders(path)) & files.keys()]


def paths(*lists: list[ResultFile]) -> dict[int, tuple[list[str], list[str]]]:
    parts = divide(dict(enumerate(lists)))
    return {
        rank: ([each.path for each in part.files], [each.path for each in part.apart]) for rank, part in parts.items()
    }


@given(LISTS)
def test_all_contents_come_and_each_has_a_path_of_its_own(lists: dict[int, dict[str, str]]) -> None:
    """No path is taken twice, none is below a file, and what is left away is there from a lower rank."""
    trees = {rank: as_tree(files) for rank, files in lists.items()}
    home: dict[str, str] = {}
    for rank, part in divide(trees).items():
        placed = {each.path: each for each in part.files} | {
            f"{folder_of(rank)}/{each.path}": each for each in part.apart
        }
        assert not home.keys() & placed.keys()
        home |= {path: each.sha256 for path, each in placed.items()}
        came = {*part.files, *part.apart}
        assert all(home[each.path] == each.sha256 for each in trees[rank] if each not in came)
    assert not any(upper in home for path in home for upper in upper_folders(path))


def test_shards_of_a_checkpoint_become_whole_and_the_heads_file_stays_at_its_path() -> None:
    head = [file("checkpoints/s/.metadata"), file("checkpoints/s/__0_0.distcp"), file("run.log", "0"), file("same")]
    other = [file("checkpoints/s/__1_0.distcp"), file("run.log", "1"), file("same")]
    assert paths(head, other) == {
        0: (["checkpoints/s/.metadata", "checkpoints/s/__0_0.distcp", "run.log", "same"], []),
        1: (["checkpoints/s/__1_0.distcp"], ["run.log"]),
    }


def test_nothing_lies_below_a_file_or_a_link_of_another_machine() -> None:
    head = [file("a"), file("last", link="one"), file("one/x")]
    assert paths(head, [file("a/b"), file("last/x"), file("one")])[1] == ([], ["a/b", "last/x", "one"])


def test_a_link_to_what_stays_with_the_others_is_left_out() -> None:
    """It would lead nowhere in the machine's own folder; one whose target is there stays."""
    head = [file("c/last", link="one"), file("c/one/x"), file("d", link="e"), file("e", "0")]
    other = [file("c/last", link="two"), file("c/two/x"), file("d", link="./e"), file("e", "1")]
    part = divide({0: head, 1: other})[1]
    assert [each.path for each in part.files] == ["c/two/x"]
    assert [each.path for each in part.apart] == ["d", "e"]
    assert list(part.left_out) == ["c/last"]


def test_no_machine_has_the_name_that_another_ones_file_gets_on_the_laptop() -> None:
    """A file that makes a folder a repository is renamed there: it would be replaced."""
    name, home = "output/HEAD", f"output/HEAD.{RENAMED}"
    assert paths([file(name)], [file(home, "y")]) == {0: ([name], []), 1: ([], [home])}
    assert paths([file(home)], [file(name, "y")]) == {0: ([home], []), 1: ([], [name])}
    assert paths([file(name)], [file(f"{home}/x", "y")]) == {0: ([name], []), 1: ([], [f"{home}/x"])}
