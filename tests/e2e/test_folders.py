"""Folders as people have them: without git, a linked worktree of git's, and deep ones with spaces in their names."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.ssh_files import sockets_folder
from tests.e2e.runs import log
from tests.support.laptop import TRAIN, Laptop, remove_runtime
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.1}
    deadline: 10m
    supervisor: {kind: %s, restarts: 0, grace: 5s}
"""


def plain(home: Path) -> Path:
    """A folder outside of git."""
    folder = home / "plain"
    folder.mkdir()
    return folder


def worktree(home: Path) -> Path:
    """A linked git worktree: its .git is a file."""
    repository, linked = home / "repository", home / "linked"
    repository.mkdir()
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *author, *words], cwd=repository, check=True)
    subprocess.run(["git", "worktree", "add", "-q", str(linked)], cwd=repository, check=True)
    (linked / ".gitignore").write_text("secret.txt\n")
    (linked / "secret.txt").write_text("not sent")
    assert (linked / ".git").is_file()
    return linked


def deep(home: Path) -> Path:
    """A path of more than 200 letters, with spaces."""
    folder = home / Path(*(["my experiments of this year"] * 8))
    folder.mkdir(parents=True)
    assert len(str(folder)) > 200
    return folder


@pytest.mark.parametrize(
    ("make", "supervisor"), [(plain, "nohup"), (worktree, "nohup"), (deep, "tmux"), (deep, "screen")]
)
def test_a_run_lives_its_life_from_any_folder(
    laptop: Laptop, make: Callable[[Path], Path], supervisor: str, tmp_path: Path
) -> None:
    """Launch, status, ssh, new code, fetch and teardown; all of kedge's own folders are as deep."""
    laptop.home = make(tmp_path)
    if make is deep:
        laptop.state = laptop.home.parent / "state of kedge"
        # The path of a socket has at most 107 bytes: kedge uses a shorter folder for them.
        laptop.runtime = laptop.home.parent / "runtime"
    shutil.copy(TRAIN, laptop.home)
    laptop.write_job(JOB % supervisor)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "step 2" in log(laptop))
    assert laptop.json("status")[0]["findings"] == []
    assert laptop.kedge("exec", "--", "ls").split() == ["ckpt", "kedge.yaml", "results", "train.py"]
    (laptop.home / "new.txt").write_text("new")
    laptop.kedge("sync-code", "--restart")
    assert "new.txt" in laptop.kedge("exec", "--", "ls")
    laptop.kedge("teardown", "--yes")
    assert (laptop.home / "kedge-results" / run / "output" / "results" / "steps.log").is_file()
    assert laptop.processes() == []
    if make is deep:
        remove_runtime(sockets_folder(laptop.runtime))
