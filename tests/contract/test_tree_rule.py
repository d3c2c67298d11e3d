"""The rule for paths and links in a tree: the same on laptop and machine, and tested on a real file system."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent.base import tree_rule as agent
from orchestrator.core.protocol import tree as core

NAMES = ("a", "b", "n")
PARTS = st.sampled_from((*NAMES, "..", ".", ""))
ROUNDABOUT = st.lists(PARTS, min_size=1, max_size=6).map("/".join)
UP_THEN_DOWN = st.builds(
    lambda ups, names: "/".join([*[".."] * ups, *names]) or ".",
    st.integers(0, 4),
    st.lists(st.sampled_from(NAMES), max_size=3),
)
TARGETS = ROUNDABOUT | UP_THEN_DOWN
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)


@settings(deadline=None)
@given(links=st.dictionaries(PATHS, TARGETS, max_size=8), folders=st.sets(PATHS, max_size=6))
def test_no_link_that_the_rule_accepts_leads_out_whatever_other_links_exist(
    links: dict[str, str], folders: set[str]
) -> None:
    """Links are made on a real file system in any order and resolved by the kernel: none leads out of the tree."""
    with tempfile.TemporaryDirectory() as above:
        root = Path(above) / "in" / "the" / "tree"
        for folder in ("", *folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        made = [path for path, target in links.items() if core.stays_inside(path, target) and _make(root, path, target)]
        for path in made:
            assert all(where.is_relative_to(root) for where in _reached(root / path)), links


def _reached(link: Path) -> list[Path]:
    """Ask the kernel which files are opened by reading a link and by writing to it; none if it leads in a circle."""
    reached = []
    for flags in (os.O_PATH, os.O_WRONLY | os.O_CREAT):
        with contextlib.suppress(OSError):
            opened = os.open(link, flags)
            reached.append(Path(f"/proc/self/fd/{opened}").readlink())
            os.close(opened)
    return reached


def _make(root: Path, path: str, target: str) -> bool:
    try:
        agent.make_folders(root, path)
        (root / path).symlink_to(target)
    except (FileExistsError, NotADirectoryError):
        return False
    return True


@given(path=PATHS, target=TARGETS | st.text(max_size=8))
def test_laptop_and_machine_keep_the_same_rule(path: str, target: str) -> None:
    """The rule is written twice, because the agent doesn't import kedge."""
    assert core.stays_inside(path, target) == agent.stays_inside(path, target)
    assert core.is_tree_path(target) == agent.is_tree_path(target)
    assert list(core.upper_folders(path)) == list(agent.upper_folders(path))
    assert core.plain_link(path, "a/b") == agent.plain_link(path, "a/b")


@given(path=PATHS, leads_to=PATHS | st.just("."))
def test_a_plain_link_has_the_right_target_and_is_accepted(path: str, leads_to: str) -> None:
    """A scan turns an indirect link into one that the rule accepts."""
    link = core.plain_link(path, leads_to)
    assert core.stays_inside(path, link)
    assert os.path.normpath(f"{path}/../{link}") == leads_to


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("repo/.git/HEAD", "repo/.git/HEAD.kedge-renamed"),
        ("repo/.git", "repo/git.kedge-renamed"),
        ("HEAD", "HEAD.kedge-renamed"),
        ("x/head", "x/HEAD.kedge-renamed"),
        ("x/.Git", "x/git.kedge-renamed"),
        ("x/HE\u200cAD", "x/HEAD.kedge-renamed"),
        ("repo/.hg/hgrc", "repo/.hg/hgrc.kedge-renamed"),
        ("repo/.hg/HGRC-not-shared", "repo/.hg/hgrc-not-shared.kedge-renamed"),
        ("repo/.hg/requires", "repo/.hg/requires"),
        ("HEAD/x", "HEAD/x"),
        ("overhead", "overhead"),
        ("repo/.git/HEAD.kedge-renamed", "repo/.git/HEAD.kedge-renamed"),
    ],
)
def test_files_that_would_make_a_repository_are_renamed_on_the_laptop(path: str, home: str) -> None:
    """Also on file systems that ignore case or some code points."""
    assert core.home_path(path) == home


@pytest.mark.parametrize("path", ["", ".", "..", "/a", "a/", "a//b", "a/./b", "a/../b", "a\0", "\ud800"])
def test_an_invalid_path_is_no_path_in_a_tree(path: str) -> None:
    """Absolute paths, empty parts, `..`, and characters that a file system can't store."""
    assert not core.is_tree_path(path)
    assert core.is_tree_path("a/..b/.c/\udc80"), "a name may hold any byte"


@pytest.mark.parametrize(
    ("path", "target", "passes"),
    [
        ("a", "b", True),
        ("a/b", "../c", True),
        ("a/b", "./.././c", True),
        ("a", "../c", False),
        ("a/b", "../../c", False),
        ("a/b", "c/../d", False),
        ("a", "/b", False),
        ("a", "", False),
        ("a/b", "..", True),
        ("a", "b\0", False),
    ],
)
def test_a_link_is_accepted_if_it_goes_up_first_and_stays_in_the_tree(path: str, target: str, passes: bool) -> None:
    """Examples of the rule."""
    assert core.stays_inside(path, target) is passes


def test_the_folders_of_a_path_come_innermost_first() -> None:
    """And a link's target is relative to the link's folder."""
    assert list(core.upper_folders("a/b/c")) == ["a/b", "a"]
    assert core.plain_link("a/b/c", "a/d") == "../d"
    assert core.plain_link("c", "a") == "a"
