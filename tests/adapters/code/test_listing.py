"""Which files count as a job's code."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.sync.code.source import GitCodeSource
from orchestrator.adapters.sync.worktree.listing import list_code
from orchestrator.core.errors import BadRequestError
from orchestrator.core.transfers import CodeSummary
from tests.adapters.code.conftest import git


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


class Later(SystemClock):
    """A clock that is ahead, so that no file counts as recently changed."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


def summary(root: Path, tmp_path: Path, clock: SystemClock | None = None) -> CodeSummary:
    return GitCodeSource(root, state=tmp_path / "state", clock=clock or SystemClock()).summary()


def test_git_decides_what_is_code(work: Path) -> None:
    """Tracked files are code, even if ignored. Untracked files are code unless ignored."""
    write(work, ".gitignore", "new.py", "junk.log", "kept.log", "deep/er/new.py")
    (work / ".gitignore").write_text("*.log\n")
    git(work, "add", "-f", "kept.log")
    assert sorted(list_code(work)) == [".gitignore", "deep/er/new.py", "kept.log", "new.py", "train.py"]


def test_a_subfolder_of_a_repository_is_a_workdir(work: Path) -> None:
    """Paths are relative to the workdir, and files outside of it are not sent."""
    write(work, "project/a.py", "project/b/c.py", "other/d.py")
    git(work, "add", "project/a.py")
    assert sorted(list_code(work / "project")) == ["a.py", "b/c.py"]


def test_submodules_and_nested_repositories_are_listed_by_their_own_rules(work: Path, tmp_path: Path) -> None:
    """Each repository's own ignore rules apply inside it, at any depth."""
    lib = tmp_path / "lib"
    write(lib, "lib.py", ".gitignore")
    (lib / ".gitignore").write_text("build\n")
    git(lib, "init", "-q")
    git(lib, "add", "-A")
    git(lib, "commit", "-qm", "x")
    git(work, "submodule", "add", "-q", str(lib), "vendor/lib")
    write(work, "vendor/lib/build/x.o", "vendor/lib/new.py", "nested/inner.py")
    git(work / "nested", "init", "-q")
    assert sorted(list_code(work)) == [
        ".gitmodules",
        "nested/inner.py",
        "train.py",
        "vendor/lib/.gitignore",
        "vendor/lib/lib.py",
        "vendor/lib/new.py",
    ]


def test_a_submodule_that_is_not_checked_out_is_left_out(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files of the outer repository do not take its place, and a warning names it."""
    lib = tmp_path / "lib"
    write(lib, "lib.py")
    git(lib, "init", "-q")
    git(lib, "add", "-A")
    git(lib, "commit", "-qm", "x")
    git(work, "submodule", "add", "-q", str(lib), "vendor")
    git(work, "submodule", "deinit", "-f", "vendor")
    assert sorted(list_code(work)) == [".gitmodules", "train.py"]
    assert "vendor" in caplog.text


def test_a_folder_without_git_is_sent_without_caches_and_environments(tmp_path: Path) -> None:
    """Caches, virtual environments and version control are not sent."""
    write(
        tmp_path / "w",
        *("a.py", "p/b.py", "p/__pycache__/b.pyc", ".venv/bin/python", "node_modules/x/y.js", "c.pyc"),
        *("kedge-results/r.txt", ".mypy_cache/z", ".hidden"),
    )
    assert sorted(list_code(tmp_path / "w")) == [".hidden", "a.py", "p/b.py"]


def test_a_warning_says_that_a_gitignore_without_git_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its repository, a copied folder sends files that git would have ignored."""
    write(tmp_path / "w", "a.py", "b.bin")
    (tmp_path / "w" / ".gitignore").write_text("*.bin\n")
    assert sorted(list_code(tmp_path / "w")) == [".gitignore", "a.py", "b.bin"]
    assert "its .gitignore doesn't count, a .kedgeignore does" in caplog.text


def test_a_folder_that_an_outer_repository_ignores_is_sent_whole(work: Path) -> None:
    """Otherwise a project inside an ignored folder would be empty."""
    (work / ".gitignore").write_text("sandbox/\n")
    write(work, "sandbox/a.py", "sandbox/__pycache__/a.pyc")
    assert list_code(work / "sandbox") == ["a.py"]


@pytest.mark.parametrize("in_git", [True, False])
def test_kedgeignore_excludes_files(tmp_path: Path, in_git: bool) -> None:
    """It has gitignore's syntax with negation and anchors, with or without git."""
    root = tmp_path / "w"
    write(root, "a.py", "data/x.bin", "deep/data/y.bin", "deep/keep.bin", "notes.md", ".kedgeignore")
    (root / ".kedgeignore").write_text("# comment\n/data\n*.bin\n!keep.bin\n.kedgeignore\n")
    if in_git:
        git(root, "init", "-q")
    assert sorted(list_code(root)) == ["a.py", "deep/keep.bin", "notes.md"]


def test_results_are_never_code(work: Path) -> None:
    """Even a tracked results folder is not sent."""
    write(work, "kedge-results/model.bin", "src/kedge-results.py")
    git(work, "add", "-A")
    assert sorted(list_code(work)) == ["src/kedge-results.py", "train.py"]


def test_a_tracked_file_that_was_deleted_is_not_code(work: Path, tmp_path: Path) -> None:
    """The work tree decides, not the index."""
    write(work, "old.py")
    git(work, "add", "-A")
    before = summary(work, tmp_path)
    (work / "old.py").unlink()
    assert (before.files, summary(work, tmp_path).files) == (2, 1)


def test_a_file_in_conflict_is_listed_once(work: Path) -> None:
    """The index has three versions of it, the disk has one file."""
    git(work, "commit", "-qm", "base")
    git(work, "checkout", "-qb", "side")
    write(work, "train.py")
    git(work, "commit", "-qam", "side")
    git(work, "checkout", "-q", "-")
    (work / "train.py").write_text("other")
    git(work, "commit", "-qam", "main")
    with pytest.raises(Exception, match="merge"):
        git(work, "merge", "side")
    assert list_code(work) == ["train.py"]


def test_the_environment_of_a_git_hook_is_ignored(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a hook of another repository, kedge still uses the workdir's own repository."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert list_code(work) == ["train.py"]


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("l", "../elsewhere"),
        ("d/l", "../../x"),
        ("l", "../my work/train.py"),
        ("l", "here/../x"),
    ],
)
def test_a_link_that_leaves_the_tree_is_refused(work: Path, tmp_path: Path, link: str, target: str) -> None:
    """The link is absolute, goes upward, leaves and comes back, or leaves through another link. The error names it."""
    (work / "d").mkdir()
    (work / "here").symlink_to(".")
    (work / link).symlink_to(target)
    with pytest.raises(BadRequestError, match="leaves the code") as caught:
        summary(work, tmp_path)
    assert repr(link) in caught.value.what


def test_a_socket_or_a_pipe_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading one would block. A warning names it."""
    root = tmp_path / "w"
    write(root, "a.py")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        try:
            os.chdir(root)
            listener.bind("sock")
        finally:
            os.chdir(here)
        assert summary(root, tmp_path).files == 1
    assert "pipe" in caplog.text
    assert "sock" in caplog.text


def test_a_missing_workdir_is_a_bad_request(tmp_path: Path) -> None:
    """The error names the folder."""
    with pytest.raises(BadRequestError, match="nowhere"):
        summary(tmp_path / "nowhere", tmp_path)


def test_a_file_with_the_manifest_s_name_is_refused(work: Path, tmp_path: Path) -> None:
    """Otherwise it could replace the manifest in the stream."""
    write(work, ".kedge-manifest.json")
    with pytest.raises(BadRequestError, match="kedge-manifest"):
        summary(work, tmp_path)


def test_the_same_tree_has_the_same_hash_anywhere(work: Path, tmp_path: Path) -> None:
    """Names, contents and exec bits change the hash. Location, times, other mode bits and git's state do not."""
    copy = tmp_path / "copy"
    write(copy, "train.py")
    (copy / "train.py").write_text("print('hello')\n")
    (copy / "train.py").chmod(0o600)
    first = summary(work, tmp_path).hash
    assert summary(copy, tmp_path).hash == first
    (copy / "train.py").chmod(0o700)
    assert summary(copy, tmp_path).hash != first
    (copy / "train.py").chmod(0o600)
    (copy / "train.py").rename(copy / "main.py")
    assert summary(copy, tmp_path).hash != first


def test_a_change_right_after_a_listing_is_noticed(work: Path, tmp_path: Path) -> None:
    """The size and the modification time are the same, because the file changed within one tick of the clock."""
    stamp = (work / "train.py").stat()
    first = summary(work, tmp_path).hash
    (work / "train.py").write_text("print('HELLO')\n")
    os.utime(work / "train.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert summary(work, tmp_path).hash != first


def test_a_damaged_cache_only_costs_time(work: Path, tmp_path: Path) -> None:
    """The result is the same."""
    first = summary(work, tmp_path, Later()).hash
    caches = list((tmp_path / "state" / "digests").iterdir())
    assert len(caches) == 1
    caches[0].write_bytes(b"{broken")
    assert summary(work, tmp_path, Later()).hash == first


@pytest.mark.parametrize("content", ["print('HELLO')\n", "longer than before\n"])
def test_a_change_of_a_cached_file_is_noticed(work: Path, tmp_path: Path, content: str) -> None:
    """A cached digest is used only for the same file, whatever its modification time is."""
    before = (work / "train.py").stat()
    first = summary(work, tmp_path, Later()).hash
    assert summary(work, tmp_path, Later()).hash == first
    (work / "train.py").write_text(content)
    os.utime(work / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert summary(work, tmp_path, Later()).hash != first


@pytest.mark.parametrize("target", ["loop", "other", "d/../loop"])
def test_a_circular_link_is_refused(work: Path, tmp_path: Path, target: str) -> None:
    """While planning. The machine would refuse it only after it is created."""
    (work / "d").mkdir()
    (work / "loop").symlink_to(target)
    (work / "other").symlink_to("loop")
    with pytest.raises(BadRequestError, match="leads in a circle"):
        summary(work, tmp_path)
