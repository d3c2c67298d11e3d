"""`.kedgeignore` has the meaning of a `.gitignore`, and cannot block kedge."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.adapters.sync.worktree.ignoring import IgnoreRules
from orchestrator.adapters.sync.worktree.listing import list_code
from orchestrator.core.errors import BadRequestError
from tests.adapters.code.conftest import git

# Few different words, so that rules often match paths, and all of the syntax except `**\/`, which is a special
# case in wildmatch.c and is not used in practice.
_PIECES = ["a", "b", "ab", "*", "**", "/", "/**/", "**/", "/**", "?", "[ab]", "[!a]", "[a-b]", "[]-b]", "[[:alpha:]]"]
_ODD = ["\\a", "\\*", "\\", "[", "[a", "[^", "[[:no:]]", "[b-a]", "[a-]", "]", " ", "\\ ", "!", "#", "é", "-", "."]
_LINES = st.lists(st.sampled_from(_PIECES + _PIECES + _ODD), min_size=1, max_size=6).map("".join)
_RULES = st.lists(
    st.tuples(st.sampled_from(["", "", "!"]), _LINES, st.sampled_from(["", "", "/", " ", "\r"])).map("".join),
    min_size=1,
    max_size=4,
).filter(lambda lines: not any("\\/" in line for line in lines))
_NAMES = st.text("ab*]é- ", min_size=1, max_size=3).filter(lambda name: name.strip() == name)
_PATHS = st.lists(st.lists(_NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=20)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=_RULES, paths=_PATHS)
def test_rules_have_the_same_meaning_as_in_git(tmp_path: Path, rules: list[str], paths: list[str]) -> None:
    """For any rules and any paths, the ignored paths are those that `git check-ignore` reports."""
    if not (tmp_path / ".git").exists():
        git(tmp_path, "init", "-q")
    text = "\n".join(rules).encode()
    (tmp_path / ".gitignore").write_bytes(text)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=tmp_path,
        input=b"\0".join(map(os.fsencode, paths)),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    by_git = {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}
    mine = IgnoreRules(text)
    assert {path for path in paths if mine.ignores(path)} == by_git


@pytest.mark.parametrize("rule", ["*a" * 60 + "b", "**/" + "a/**/" * 60 + "b", "/" + "*a" * 60 + "b", "*" * 900 + "b"])
def test_a_rule_of_many_stars_takes_no_time(tmp_path: Path, rule: str) -> None:
    """With any of these rules, a matcher that backtracks takes longer than the age of the universe."""
    for path in ("a" * 200, "a/" * 100 + "a"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / ".kedgeignore").write_text(f"{rule}\n")
    began = time.monotonic()
    assert set(list_code(tmp_path)) == {"a" * 200, "a/" * 100 + "a", ".kedgeignore"}
    assert time.monotonic() - began < 50


@pytest.mark.parametrize("text", ["a\n" * 1_001, "a" * 1_025, "a" * (1 << 18) + "\n#"])
def test_too_many_rules_are_refused(tmp_path: Path, text: str) -> None:
    """Many rules, long rules, or a large file. The error says which."""
    (tmp_path / ".kedgeignore").write_text(text)
    with pytest.raises(BadRequestError, match="kedgeignore"):
        list_code(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "device", "itself", "folder"])
def test_a_kedgeignore_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe, an endless device and a link to itself are refused at once."""
    place = tmp_path / ".kedgeignore"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to({"device": "/dev/zero", "itself": ".kedgeignore"}[kind])
    with pytest.raises(BadRequestError, match="kedgeignore"):
        list_code(tmp_path)


def test_rules_that_take_too_long_are_refused() -> None:
    """However many files and stars there are, the work is bounded."""
    rules = IgnoreRules(b"*.log\n", seconds=0)
    with pytest.raises(BadRequestError, match="takes more than"):
        rules.ignores("a.log")
