"""Git finds no repository in fetched results."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.adapters.objects.backends import RUN, Backend, fetch, files_below, upload_run


def test_git_finds_no_repository_in_fetched_results(backend: Backend, tmp_path: Path) -> None:
    """Files that would make a folder a repository are renamed, the same way in each fetch. Nothing is copied twice."""
    repository = tmp_path / "repo"
    marker = tmp_path / "ran"
    subprocess.run(["git", "init", "-q", repository], check=True)
    subprocess.run(["git", "config", "core.fsmonitor", f"touch {marker}; false"], cwd=repository, check=True)
    paths = [path for path in repository.rglob("*") if path.is_file()]
    files = {str(path.relative_to(repository)): path.read_bytes() for path in paths}
    upload_run(backend, {**files, ".git/objects/x": b"x", ".git/refs/x": b"x"})
    fetch(backend, tmp_path / "here")
    before = {path: path.stat().st_ino for path in (tmp_path / "here").rglob("*")}
    arrival = backend.store.fetch(RUN, str(tmp_path / "here"), lambda _done, _total: None)
    assert {path: path.stat().st_ino for path in (tmp_path / "here").rglob("*")} == before
    assert arrival.renamed == {".git/HEAD": ".git/HEAD.kedge-renamed"}
    for folder in (tmp_path / "here", tmp_path / "here" / ".git"):
        subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
    assert not marker.exists()
    assert files_below(tmp_path / "here")[".git/HEAD.kedge-renamed"] == files[".git/HEAD"]


def test_a_repository_that_was_fetched_earlier_is_disarmed(backend: Backend, tmp_path: Path) -> None:
    """An earlier fetch may have brought it: by rsync, or by a version of kedge that didn't rename."""
    upload_run(backend, {"run.log": b"x"})
    subprocess.run(["git", "init", "-q", tmp_path / "here" / "repo"], check=True)
    arrival = backend.store.fetch(RUN, str(tmp_path / "here"), lambda _done, _total: None)
    assert arrival.renamed == {"repo/.git/HEAD": "repo/.git/HEAD.kedge-renamed"}
