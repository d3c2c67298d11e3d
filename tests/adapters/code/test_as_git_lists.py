"""In a repository of any kind, kedge lists the same files as git."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.sync.worktree.listing import list_code
from orchestrator.core.errors import BadRequestError
from tests.adapters.code import hostile
from tests.adapters.code.repositories import (
    a_bare_repository_in_it,
    a_conflict,
    a_separate_git_folder,
    a_sparse_checkout,
    a_sparse_index,
    a_split_index,
    a_subfolder,
    a_submodule,
    a_work_tree_of_its_own,
    an_added_intent,
    an_empty_repository,
    an_included_excludes_file,
    an_untracked_cache,
    excludes_file,
    filled,
    ignoring_case,
    index_version_4,
    info_exclude,
    plain,
    reached_through_a_link,
    sha256,
)


def as_git_lists(root: Path) -> set[str]:
    """List the files with git itself and the repository's own configuration."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(argv, cwd=root, capture_output=True, check=True)
    listed = {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}
    return {path for path in listed if os.path.lexists(root / path)}


@pytest.mark.parametrize(
    "make",
    [
        plain,
        a_subfolder,
        reached_through_a_link,
        info_exclude,
        excludes_file,
        an_included_excludes_file,
        ignoring_case,
        index_version_4,
        a_split_index,
        an_untracked_cache,
        a_conflict,
        an_added_intent,
        sha256,
        a_sparse_checkout,
        a_sparse_index,
        a_work_tree_of_its_own,
        a_separate_git_folder,
        a_submodule,
        an_empty_repository,
        a_bare_repository_in_it,
    ],
)
def test_the_listed_files_are_those_that_git_lists(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """With kedge's empty configuration, git reads the same index and applies the same ignore rules."""
    root = make(tmp_path / "work")
    expected = as_git_lists(root)
    assert expected
    assert {path for path in list_code(root) if os.path.lexists(root / path)} == expected


def test_the_user_s_own_ignore_rules_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from `core.excludesFile` in the configuration of the home folder."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignores\n")
    (home / "ignores").write_text("data\n")
    monkeypatch.setenv("HOME", str(home))
    root = filled(tmp_path / "work")
    assert set(list_code(root)) == as_git_lists(root)
    assert not any(path.startswith("data/") for path in list_code(root))


def test_listing_changes_nothing_in_the_repository(tmp_path: Path) -> None:
    """Neither the index nor anything else is written, so a command that only looks changes nothing."""
    root = a_split_index(tmp_path / "work")
    before = {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}
    list_code(root)
    assert {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()} == before


def test_a_damaged_repository_is_a_bad_request(tmp_path: Path) -> None:
    """Otherwise kedge might send files that git would have ignored."""
    root = hostile.plain_repository(tmp_path / "work")
    (root / ".git" / "index").write_bytes(b"no index")
    with pytest.raises(BadRequestError, match="git can't list"):
        list_code(root)


@pytest.mark.parametrize("name", ["index", "config", "HEAD", "commondir"])
def test_a_pipe_in_a_repository_does_not_block_the_listing(tmp_path: Path, name: str) -> None:
    """A pipe in place of a file of the repository is refused by name."""
    root = hostile.plain_repository(tmp_path / "work")
    (root / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(root / ".git" / name)
    with pytest.raises(BadRequestError, match=name):
        list_code(root)


def test_a_pipe_as_gitignore_does_not_block_the_listing_for_long(tmp_path: Path) -> None:
    """Git itself waits for ever. After two seconds kedge looks for the pipe, and names it."""
    root = hostile.plain_repository(tmp_path / "work")
    (root / "deep").mkdir()
    (root / "deep" / "x").write_text("x")
    os.mkfifo(root / "deep" / ".gitignore")
    began = time.monotonic()
    with pytest.raises(BadRequestError, match=r"deep/\.gitignore"):
        list_code(root)
    assert time.monotonic() - began < 60


def test_a_git_file_that_names_no_repository_is_a_bad_request(tmp_path: Path) -> None:
    """Git cannot list such a folder either."""
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    with pytest.raises(BadRequestError, match="names no git repository"):
        list_code(tmp_path)


def test_too_many_nested_repositories_are_refused(tmp_path: Path) -> None:
    """Each costs a process, so the number of processes has to be bounded."""
    root = hostile.plain_repository(tmp_path / "work")
    for number in range(501):
        nested = root / f"n{number}" / ".git"
        for folder in ("objects", "refs"):
            (nested / folder).mkdir(parents=True)
        (nested / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(BadRequestError, match="more than 500"):
        list_code(root)


def test_a_path_with_too_many_folders_in_an_index_is_refused(tmp_path: Path) -> None:
    """Thousands of folders in one path do not cause a traceback."""
    root = hostile.plain_repository(tmp_path / "work")
    hostile.write_index(root, "a/" * 2_000 + "a", "train.py")
    assert set(list_code(root)) == {"train.py", ".gitignore"}


def test_the_attacks_fail_with_a_git_that_knows_no_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that ignores kedge's settings, as old versions do, still runs no program."""
    program, ran = hostile.alarm(tmp_path)
    roots = [
        make(tmp_path / make.__name__ / "work", program)
        for make in (hostile.with_fsmonitor, hostile.with_bare_layout, hostile.with_promisor, hostile.with_gitfile)
    ]
    ran.unlink(missing_ok=True)
    old_git(tmp_path / "bin", monkeypatch)
    for root in roots:
        assert "train.py" in list_code(root)
    assert not ran.exists()


def old_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a git first on the path that ignores `-c` and the environment variables of later versions."""
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    folder.mkdir()
    script = folder / "git"
    script.write_text(
        "#!/bin/sh\n"
        "unset GIT_ALLOW_PROTOCOL GIT_NO_LAZY_FETCH GIT_OPTIONAL_LOCKS\n"
        'while [ "$1" = -c ]; do shift 2; done\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
