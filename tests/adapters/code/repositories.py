"""Make repositories of every kind that git supports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.adapters.code import hostile
from tests.adapters.code.conftest import git


def filled(root: Path) -> Path:
    """Make a work tree with files of every kind."""
    hostile.plain_repository(root)
    for path in ("src/a.py", "src/deep/b.py", "src/deep/c.log", "docs/d.md", "data/e.bin", "name with\nline"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    git(root, "add", "src", "docs")
    git(root, "add", "-f", "src/deep/c.log")
    git(root, "commit", "-qm", "y")
    (root / "src" / "deep" / ".gitignore").write_text("!junk.log\n/b.py\nnew?.py\n")
    for path in ("src/new1.py", "src/deep/new1.py", "src/deep/junk.log", "src/deep/news.py", "build/x.o"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def plain(root: Path) -> Path:
    return filled(root)


def a_subfolder(root: Path) -> Path:
    return filled(root) / "src"


def reached_through_a_link(root: Path) -> Path:
    filled(root)
    (root.parent / "short").symlink_to(root / "src")
    return root.parent / "short"


def info_exclude(root: Path) -> Path:
    return exclude_here(filled(root), "data\n!junk.log\n")


def exclude_here(root: Path, rules: str) -> Path:
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text(rules)
    return root


def excludes_file(root: Path) -> Path:
    filled(root)
    (root.parent / "own ignores").write_text("build\ndocs\n")
    git(root, "config", "core.excludesFile", str(root.parent / "own ignores"))
    return exclude_here(root, "!build\n")


def an_included_excludes_file(root: Path) -> Path:
    filled(root)
    (root / "team.config").write_text("[core]\n\texcludesFile = .teamignore\n")
    (root / ".teamignore").write_text("data\n")
    git(root, "config", "include.path", "../team.config")
    return root


def ignoring_case(root: Path) -> Path:
    filled(root)
    (root / "loud.LOG").write_text("x")
    git(root, "config", "core.ignoreCase", "true")
    return root


def index_version_4(root: Path) -> Path:
    git(filled(root), "update-index", "--index-version", "4")
    return root


def a_split_index(root: Path) -> Path:
    git(filled(root), "update-index", "--split-index")
    git(root, "add", "src/new1.py")
    return root


def an_untracked_cache(root: Path) -> Path:
    git(filled(root), "update-index", "--force-untracked-cache")
    git(root, "status")
    return root


def a_conflict(root: Path) -> Path:
    filled(root)
    git(root, "checkout", "-qb", "side")
    (root / "train.py").write_text("side")
    git(root, "commit", "-qam", "side")
    git(root, "checkout", "-q", "-")
    (root / "train.py").write_text("main")
    git(root, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "side")
    return root


def an_added_intent(root: Path) -> Path:
    git(filled(root), "add", "-N", "src/new1.py")
    return root


def sha256(root: Path) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q", "--object-format=sha256")
    return filled(root)


def a_sparse_checkout(root: Path) -> Path:
    git(filled(root), "sparse-checkout", "set", "--no-cone", "/*", "!/src/deep/")
    return root


def a_sparse_index(root: Path) -> Path:
    git(filled(root), "sparse-checkout", "set", "--cone", "--sparse-index", "docs")
    return root


def a_work_tree_of_its_own(root: Path) -> Path:
    filled(root)
    git(root, "worktree", "add", "-q", str(root.parent / "second"), "-b", "second")
    (root.parent / "second" / "src" / "only here.py").write_text("x")
    (root.parent / "second" / "only.log").write_text("x")
    exclude_here(root, "data\n")
    return root.parent / "second"


def a_separate_git_folder(root: Path) -> Path:
    filled(root)
    git(root, "init", "-q", f"--separate-git-dir={root.parent / 'metadata'}")
    return root


def a_submodule(root: Path) -> Path:
    library = filled(root.parent / "library")
    git(filled(root), "submodule", "add", "-q", str(library), "vendor")
    (root / "vendor" / "new.py").write_text("x")
    return root / "vendor"


def an_empty_repository(root: Path) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "-q")
    (root / "new.py").write_text("x")
    return root


def a_bare_repository_in_it(root: Path) -> Path:
    filled(root)
    git(root, "clone", "-q", "--bare", str(root), str(root / "mirror"))
    return root
