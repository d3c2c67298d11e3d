"""What lies at home after a fetch, whoever brought it there."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.incoming.arrivals import (
    ResultsPlacer,
    UnfitError,
    find_differences,
    place_file,
    place_link,
    rename_repository_files,
)
from orchestrator.core.protocol.results import ResultFile


def link(path: str, target: str) -> ResultFile:
    return ResultFile(path=path, bytes=0, sha256="", link=target)


def test_a_repository_that_an_earlier_fetch_has_left_is_disarmed(tmp_path: Path) -> None:
    """Or one of a machine whose rsync doesn't heed what it is asked for; the second time there is nothing to do."""
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], check=True)
    (tmp_path / "worktree").mkdir()
    (tmp_path / "worktree/.git").write_text("gitdir: ../repo/.git\n")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.git").symlink_to("../repo/.git")
    assert rename_repository_files(tmp_path) == {
        "repo/.git/HEAD": "repo/.git/HEAD.kedge-renamed",
        "worktree/.git": "worktree/git.kedge-renamed",
        "linked/.git": "linked/git.kedge-renamed",
    }
    assert rename_repository_files(tmp_path) == {}
    for folder in ("repo", "worktree", "linked"):
        argv = ["env", f"GIT_CEILING_DIRECTORIES={tmp_path}", "git", "-C", str(tmp_path / folder), "rev-parse"]
        assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_results_that_are_nested_as_deeply_as_can_be_are_looked_through(tmp_path: Path) -> None:
    """A machine may nest them so that whoever recurses dies of it."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    assert rename_repository_files(tmp_path) == {}
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_a_link_to_what_was_renamed_leads_to_its_new_name(tmp_path: Path) -> None:
    """And a link that is renamed itself is no repository either."""
    (tmp_path / "HEAD").write_text("x")
    head = ResultFile(path="HEAD", bytes=1, sha256="")
    arrival = ResultsPlacer(tmp_path, [head, link("latest", "HEAD"), link("sub/.git", "../x")]).finish()
    assert (tmp_path / "latest").read_text() == "x"
    assert (tmp_path / "sub/git.kedge-renamed").is_symlink()
    assert arrival.left_out == {}


def test_a_name_that_is_taken_already_costs_the_file_that_would_be_renamed(tmp_path: Path) -> None:
    """It is named; the one whose own name it is stays as it is in every fetch."""
    files = [ResultFile(path=name, bytes=1, sha256="") for name in ("HEAD", "HEAD.kedge-renamed")]
    placer = ResultsPlacer(tmp_path, files)
    assert placer.to_copy() == []
    assert placer.finish().left_out.keys() == {"HEAD"}


def test_what_was_a_link_may_be_a_folder_now_and_the_other_way_round(tmp_path: Path) -> None:
    """Between two fetches; a folder isn't removed for a link, and a link of the user's own isn't removed at all."""
    place_link(tmp_path, "latest", "runs/1")
    assert place_file(tmp_path, "latest/a") == tmp_path / "latest/a"
    assert (tmp_path / "latest").is_dir()
    assert not (tmp_path / "latest").is_symlink()
    with pytest.raises(UnfitError, match="a folder has its name"):
        place_link(tmp_path, "latest", "runs/1")
    (tmp_path / "mine").symlink_to("/elsewhere")
    with pytest.raises(UnfitError, match="in the way"):
        place_file(tmp_path, "mine/a")
    assert (tmp_path / "mine").is_symlink()


def test_a_copy_is_compared_with_what_the_machine_listed(tmp_path: Path) -> None:
    """Missing, cut and changed files differ; a log that has grown since, and a link, don't."""

    def listed(path: str) -> ResultFile:
        return ResultFile(path=path, bytes=7, sha256=hashlib.sha256(b"content").hexdigest())

    for name, content in {
        "same": b"content",
        "grown": b"content and more",
        "cut": b"con",
        "changed": b"CONTENT",
    }.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "latest").symlink_to("same")
    files = [listed(name) for name in ("same", "grown", "cut", "changed", "missing", "folder")]
    files += [link("latest", "same"), link("lost", "same")]
    assert find_differences(files, tmp_path) == ("cut", "changed", "missing", "folder", "lost")
