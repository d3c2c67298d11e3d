"""Untrusted repositories that make git run a program, or that reach files outside of themselves."""

from __future__ import annotations

import os
import struct
import subprocess
from hashlib import sha1
from pathlib import Path

from tests.adapters.code.conftest import git


def alarm(folder: Path) -> tuple[Path, Path]:
    """Return a program, and the file that exists once it has run."""
    ran = folder / "it ran"
    program = folder / "alarm.sh"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\nexit 1\n")
    program.chmod(0o755)
    return program, ran


def plain_repository(root: Path) -> Path:
    """Make a work tree with one tracked and one ignored file."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q")
    (root / "train.py").write_text("print('hello')\n")
    (root / "junk.log").write_text("junk\n")
    (root / ".gitignore").write_text("*.log\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    return root


def with_fsmonitor(root: Path, program: Path) -> Path:
    """Configure a program as git's file system monitor."""
    git(plain_repository(root), "config", "core.fsmonitor", str(program))
    return root


def with_included_fsmonitor(root: Path, program: Path) -> Path:
    """Configure the program in a tracked file that the configuration includes."""
    plain_repository(root)
    (root / "shared.config").write_text(f'[core]\n\tfsmonitor = "{program}"\n')
    git(root, "config", "include.path", "../shared.config")
    return root


def with_worktree_configuration(root: Path, program: Path) -> Path:
    """Configure the program in the configuration of one work tree."""
    plain_repository(root)
    git(root, "config", "extensions.worktreeConfig", "true")
    git(root, "config", "--worktree", "core.fsmonitor", str(program))
    return root


def with_gitfile(root: Path, program: Path) -> Path:
    """Let a `.git` file point to a repository elsewhere, as in a submodule."""
    elsewhere = root.parent / "elsewhere"
    with_fsmonitor(root, program)
    (root / ".git").rename(elsewhere)
    (root / ".git").write_text(f"gitdir: {elsewhere}\n")
    return root


def with_nested_repository(root: Path, program: Path) -> Path:
    """Put a hostile repository inside a harmless work tree, as a machine's results might."""
    plain_repository(root)
    with_fsmonitor(root / "results" / "model", program)
    return root


def with_hostile_submodule(root: Path, program: Path) -> Path:
    """Check out a submodule that has a hostile configuration."""
    library = plain_repository(root.parent / "library")
    plain_repository(root)
    git(root, "submodule", "add", "-q", str(library), "vendor")
    git(root / "vendor", "config", "core.fsmonitor", str(program))
    return root


def with_bare_layout(root: Path, program: Path) -> Path:
    """Commit a folder `model` that git takes for a bare repository, clone it, and return that folder as the workdir."""
    plain_repository(root)
    model = root / "model"
    for folder in ("objects", "refs"):
        (model / folder).mkdir(parents=True)
        (model / folder / "keep").write_text("")
    (model / "HEAD").write_text("ref: refs/heads/main\n")
    (model / "config").write_text(
        f'[core]\n\trepositoryFormatVersion = 0\n\tbare = false\n\tworktree = ".."\n\tfsmonitor = "{program}"\n'
    )
    (model / "train.py").write_text("print('hello')\n")
    git(root, "add", "-A")
    clone = root.parent / "clone"
    git(root, "commit", "-qm", "model")
    git(root, "clone", "-q", str(root), str(clone))
    return clone / "model"


def with_promisor(root: Path, program: Path) -> Path:
    """Remove the content of a `.gitignore`, which git would fetch by running the remote's program."""
    plain_repository(root)
    (root / "deep").mkdir()
    (root / "deep" / ".gitignore").write_text("*.tmp\n")
    (root / "deep" / "x.tmp").write_text("x")
    git(root, "add", "-A")
    git(root, "update-index", "--skip-worktree", "deep/.gitignore")
    (root / "deep" / ".gitignore").unlink()
    blob = subprocess.run(
        ["git", "rev-parse", ":deep/.gitignore"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(root.parent),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(program),
    }.items():
        git(root, "config", name, value)
    return root


def write_index(root: Path, *paths: str) -> None:
    """Write an index with these paths, which git itself would refuse to add."""
    entries = b""
    for path in sorted(os.fsencode(path) for path in paths):
        entry = bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + bytes(20) + struct.pack(">H", len(path)) + path
        entries += entry + bytes(8 - len(entry) % 8)
    content = struct.pack(">4sII", b"DIRC", 2, len(paths)) + entries
    (root / ".git" / "index").write_bytes(content + sha1(content, usedforsecurity=False).digest())
