"""Results on the laptop after a fetch: renamed repositories, links, and the comparison with the machine's list."""

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


def test_a_repository_from_an_earlier_fetch_is_disarmed(tmp_path: Path) -> None:
    """Also one that came because a machine's rsync ignored its options. The second call has nothing to do."""
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


def test_very_deeply_nested_results_are_searched(tmp_path: Path) -> None:
    """A machine may nest folders so deeply that a recursive function crashes."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    assert rename_repository_files(tmp_path) == {}
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)


def test_a_link_to_a_renamed_file_leads_to_its_new_name(tmp_path: Path) -> None:
    """A link that is called `.git` is renamed too, so that it doesn't become a repository."""
    (tmp_path / "HEAD").write_text("x")
    head = ResultFile(path="HEAD", bytes=1, sha256="")
    arrival = ResultsPlacer(tmp_path, [head, link("latest", "HEAD"), link("sub/.git", "../x")]).finish()
    assert (tmp_path / "latest").read_text() == "x"
    assert (tmp_path / "sub/git.kedge-renamed").is_symlink()
    assert arrival.left_out == {}


def test_a_file_is_left_out_if_its_new_name_is_taken(tmp_path: Path) -> None:
    """It is reported. The file that has this name already keeps it in every fetch."""
    files = [ResultFile(path=name, bytes=1, sha256="") for name in ("HEAD", "HEAD.kedge-renamed")]
    placer = ResultsPlacer(tmp_path, files)
    assert placer.to_copy() == []
    assert placer.finish().left_out.keys() == {"HEAD"}


def test_only_kedges_own_links_are_replaced(tmp_path: Path) -> None:
    """Between two fetches a link may become a folder.

    Neither a folder nor a link of the user's is removed for a link.
    """
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
    """Missing, truncated and changed files differ; a log that has grown since doesn't, nor does an intact link."""

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
