"""Listing an untrusted repository runs none of its programs, and never leaves its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.sync.worktree.listing import list_code
from tests.adapters.code import hostile
from tests.adapters.code.conftest import git
from tests.support.laptop import Laptop


@pytest.mark.parametrize(
    "make",
    [
        hostile.with_fsmonitor,
        hostile.with_included_fsmonitor,
        hostile.with_worktree_configuration,
        hostile.with_gitfile,
        hostile.with_nested_repository,
        hostile.with_hostile_submodule,
        hostile.with_bare_layout,
        hostile.with_promisor,
    ],
)
def test_listing_an_untrusted_repository_runs_nothing(tmp_path: Path, make: Callable[[Path, Path], Path]) -> None:
    """Whatever its configuration names and wherever the repository is, kedge only lists its files."""
    program, ran = hostile.alarm(tmp_path)
    workdir = make(tmp_path / "work", program)
    ran.unlink(missing_ok=True)
    assert "train.py" in list_code(workdir)
    assert not ran.exists()


@pytest.mark.parametrize("path", ["../secret", "deep/../../secret", "/etc/hostname", ".git/config", "deep/.git/config"])
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, path: str) -> None:
    """Paths that git refuses to add are ignored if somebody wrote them into the index."""
    root = hostile.plain_repository(tmp_path / "work")
    (tmp_path / "secret").write_text("secret")
    (root / "deep").mkdir()
    hostile.write_index(root, "train.py", path)
    assert set(list_code(root)) == {"train.py", ".gitignore"}


def test_a_tracked_file_behind_a_link_is_not_code(tmp_path: Path) -> None:
    """If a folder was replaced by a link, ignored or not, the files behind the link are not listed."""
    root = hostile.plain_repository(tmp_path / "work")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id").write_text("secret")
    for name in ("kept", "hidden.log"):
        (root / name).mkdir()
        (root / name / "id").write_text("mine")
        git(root, "add", "-f", name)
        (root / name / "id").unlink()
        (root / name).rmdir()
        (root / name).symlink_to("../keys")
    assert set(list_code(root)) == {"train.py", ".gitignore", "kept"}


def test_a_work_tree_elsewhere_is_ignored(tmp_path: Path) -> None:
    """`core.worktree` cannot make kedge list the files of another folder."""
    root = hostile.plain_repository(tmp_path / "work")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    git(root, "config", "core.worktree", str(tmp_path / "elsewhere"))
    assert set(list_code(root)) == {"train.py", ".gitignore"}


def test_planning_an_untrusted_job_runs_none_of_its_programs(laptop: Laptop, tmp_path: Path) -> None:
    """`kedge plan` runs in a fresh clone. The job's folder is one that git takes for a repository."""
    program, ran = hostile.alarm(tmp_path)
    clone = hostile.with_bare_layout(tmp_path / "work", program).parent
    ran.unlink(missing_ok=True)
    laptop.home = clone
    laptop.write_job("{name: model, workdir: model, run: python train.py}")
    assert "code" in laptop.kedge("plan")
    assert not ran.exists()
