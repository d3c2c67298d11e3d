"""Repositories at a commit, from git's own server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agent.sources.machine import Machine, files_below
from tests.agent.sources.web import GitHost, Serve


class Repository:
    """A repository with two commits and a tag on the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.call("init", "--quiet", "--bare", "--initial-branch=main", str(folder))
        self.work = folder.with_suffix(".work")
        self.call("clone", "--quiet", str(folder), str(self.work))
        self.first = self.commit({"a.txt": "1", "run.sh": "#!/bin/sh"})
        self.call("-C", str(self.work), "tag", "-a", "v1.0", "-m", "first")
        self.second = self.commit({"a.txt": "2"})
        self.call("-C", str(self.work), "push", "--quiet", "--tags", "origin", "HEAD:main")

    def commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            (self.work / name).write_text(text)
        self.call("-C", str(self.work), "add", "--all")
        self.call("-C", str(self.work), "commit", "--quiet", "-m", "change")
        return self.call("-C", str(self.work), "rev-parse", "HEAD").strip()

    def call(self, *argv: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        quiet = subprocess.run(["git", *identity, *argv], check=True, capture_output=True, text=True)
        return quiet.stdout


@pytest.fixture
def host(serve: Serve, tmp_path: Path) -> GitHost:
    return serve(GitHost(folder=tmp_path))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "faces.git")


def test_a_commit_that_is_not_the_tip_of_a_branch_is_fetched_without_history(
    machine: Machine, host: GitHost, repository: Repository
) -> None:
    """Only its files: there is no .git, and no other commit was transferred."""
    folder = machine.fetch(f"git+{host.url}/faces.git@{repository.first}")
    assert files_below(folder) == {"a.txt": b"1", "run.sh": b"#!/bin/sh"}
    assert machine.record()["version"] == repository.first
    assert machine.record()["files"] == 2
    assert any(b"deepen 1" in asked.body for asked in host.asked)


def test_a_tag_is_fetched_and_its_commit_recorded(machine: Machine, host: GitHost, repository: Repository) -> None:
    """An annotated tag means the commit that it points to."""
    assert (machine.fetch(f"git+{host.url}/faces.git@v1.0") / "a.txt").read_text() == "1"
    assert machine.record()["version"] == repository.first


@pytest.mark.parametrize("ref", ["main", "v9", "0" * 40])
def test_a_branch_or_an_unknown_commit_is_refused(
    machine: Machine, host: GitHost, repository: Repository, ref: str
) -> None:
    """A branch moves, so nobody would know which data the run was trained on."""
    error = machine.refuse(f"git+{host.url}/faces.git@{ref}")
    assert f"has no commit or tag {ref}" in str(error)
    assert "branch moves" in error.fix


def test_the_token_for_a_private_repository_is_in_no_argument(
    machine: Machine, host: GitHost, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git asks for it; the token is on no command line and in no file."""
    spy = tmp_path / "bin" / "git"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/argv\nexec {shutil.which("git")} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    host.token = "hunter2"
    address = f"git+{host.url}/faces.git@{repository.second}"
    assert machine.refuse(address).fix.startswith("name GIT_TOKEN under `secrets`")
    assert "check that GIT_TOKEN is right" in machine.refuse(address, GIT_TOKEN="wrong").fix
    assert (machine.fetch(address, GIT_TOKEN="hunter2") / "a.txt").read_text() == "2"
    assert "fetch" in (tmp_path / "argv").read_text()
    told = [path for path in tmp_path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert told == []


def test_a_missing_repository_is_reported_at_once(machine: Machine, host: GitHost) -> None:
    """The error has the address."""
    assert f"{host.url}/other.git does not exist" in str(machine.refuse(f"git+{host.url}/other.git@{'a' * 40}"))


def test_a_request_to_a_busy_git_server_is_retried(machine: Machine, host: GitHost, repository: Repository) -> None:
    """The request is retried for a while."""
    host.refusals = [503]
    assert (machine.fetch(f"git+{host.url}/faces.git@{repository.second}") / "a.txt").read_text() == "2"
    host.refusals = [503] * 100
    machine.retry_seconds = 0.5
    assert "503" in machine.refuse(f"git+{host.url}/faces.git@v1.0").why


def test_missing_git_is_reported(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    error = machine.refuse(f"git+http://127.0.0.1:9/faces.git@{'a' * 40}")
    assert "no git" in str(error)
    assert "image" in error.fix
