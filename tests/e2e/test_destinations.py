"""Where results are copied to: a machine chose their names, so they never go among the user's own files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.hostile import folder, launch_and_ship
from tests.support.laptop import Laptop


def test_results_are_not_copied_among_the_users_files(laptop: Laptop, tmp_path: Path) -> None:
    """A machine uploads `.git/config` and `kedge.yaml`: they replace nobody's, and the user's repository is safe."""
    run = launch_and_ship(laptop)
    ran, mine = tmp_path / "git ran", laptop.home / "mine"
    results = folder(laptop, run) / "results"
    (results / ".git").mkdir()
    (results / ".git" / "config").write_text(f"[core]\n\tfsmonitor = touch '{ran}'; false\n")
    (results / "kedge.yaml").write_text("{name: evil, run: evil}\n")
    (laptop.home / "kedge-results" / "other").mkdir(parents=True)
    mine.mkdir()
    for place in (mine, laptop.home, laptop.home / "kedge-results" / "other"):
        subprocess.run(["git", "init", "-q", place], check=True)
        (place / "kedge.yaml").write_text("mine")
        (place / ".kedge-results").write_text("a repository may say that it is a folder for results")
    for words in (".", "kedge-results/..", "../home", "mine", "kedge-results/other"):
        laptop.kedge("fetch", run, "--to", words, code=2)
        assert "holds other files" in laptop.errors
        place = laptop.home / words
        assert (place / "kedge.yaml").read_text() == "mine"
        subprocess.run(["git", "status"], cwd=place, check=True, capture_output=True)
    assert not ran.exists()


def test_a_folder_that_received_results_receives_them_again(laptop: Laptop) -> None:
    """A new or an empty folder is marked as a results folder."""
    run = launch_and_ship(laptop)
    (laptop.home / "empty").mkdir()
    for place in ("new", "empty", "new", "empty"):
        laptop.kedge("fetch", run, "--to", place)
        assert (laptop.home / place / "run.log").exists()


@pytest.mark.parametrize("words", [(), ("--to", "best")], ids=["usual", "named"])
def test_a_fetched_job_file_is_not_used_unless_it_is_named(laptop: Laptop, words: tuple[str, ...]) -> None:
    """Among results, no job file of the machine's is found by itself; a path can name it like any other."""
    run = launch_and_ship(laptop)
    output = folder(laptop, run) / "results" / "output"
    (output / "kedge.yaml").write_text("{name: evil, run: evil}\n")
    (output / "next.yaml").write_text("{name: evil, run: evil}\n")
    laptop.kedge("fetch", run, *words)
    laptop.home /= Path("best" if words else f"kedge-results/{run}") / "output"
    assert (laptop.home / "next.yaml").exists()
    for found in ((), ("--job", "next")):
        laptop.kedge("plan", *found, code=2)
        assert "was fetched with results" in laptop.errors
    assert "Run evil" in laptop.kedge("plan", "--job", "./kedge.yaml")
