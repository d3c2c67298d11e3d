"""Links in a cloned repository never lead kedge to the user's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.laptop import Laptop

JOB = "{name: hostile, workdir: ., run: 'true', deadline: 5m, supervisor: {kind: nohup}}"


@pytest.fixture
def bashrc(tmp_path: Path) -> Path:
    """A file of the user's, alone in its folder."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".bashrc").write_text("mine\n")
    return tmp_path / "user" / ".bashrc"


@pytest.mark.parametrize("place", ["kedge-results", "kedge-results/.gitignore"])
def test_a_launch_writes_nothing_through_links_in_the_repository(laptop: Laptop, bashrc: Path, place: str) -> None:
    """The results folder, or the file that hides it from git, is a link: the plan refuses it by name."""
    link = laptop.home / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(bashrc if link.name == ".gitignore" else bashrc.parent)
    (laptop.home / "train.py").unlink()
    laptop.write_job(JOB)
    laptop.kedge("launch", "--yes", code=2)
    assert f"{link} is a link" in laptop.errors
    assert names(bashrc.parent) == [".bashrc"]
    assert bashrc.read_text() == "mine\n"
    assert laptop.json("status") == []


def test_a_plan_names_the_link(laptop: Laptop, bashrc: Path) -> None:
    """A plan refuses what a launch would refuse."""
    (laptop.home / "kedge-results").symlink_to(bashrc.parent)
    laptop.write_job(JOB)
    laptop.kedge("plan", code=2)
    assert "kedge-results is a link" in laptop.errors


def test_a_self_test_writes_no_report_through_a_link(laptop: Laptop, bashrc: Path) -> None:
    """Refused before anything is rented."""
    (laptop.home / "kedge-selftest.json").symlink_to(bashrc)
    laptop.kedge("selftest", "--yes", code=2)
    assert "kedge-selftest.json is a link" in laptop.errors
    assert bashrc.read_text() == "mine\n"


def test_a_schema_is_not_written_through_a_link(laptop: Laptop, bashrc: Path) -> None:
    """Nor is a file that the user names, if a repository has put a link there."""
    (laptop.home / "schema.json").symlink_to(bashrc)
    laptop.kedge("job-schema", "--output", "schema.json", code=2)
    assert "schema.json is a link" in laptop.errors
    assert bashrc.read_text() == "mine\n"


def test_results_are_not_fetched_through_a_link(laptop: Laptop, bashrc: Path) -> None:
    """A link that is added later, for example by `git pull` between launch and fetch, is refused too."""
    laptop.write_job(JOB)
    laptop.kedge("launch", "--yes", "--keep", "--detach")
    results = laptop.home / "kedge-results"
    results.rename(laptop.home / "moved") if results.exists() else None
    results.symlink_to(bashrc.parent)
    laptop.kedge("fetch", code=2)
    assert "kedge-results is a link" in laptop.errors
    assert names(bashrc.parent) == [".bashrc"]


def test_a_link_does_not_prevent_a_teardown(laptop: Laptop, bashrc: Path) -> None:
    """The teardown copies the results to kedge's own folder, says so in its plan, and ends the machine."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--yes", "--keep", "--detach")["run"]
    (laptop.home / "kedge-results").symlink_to(bashrc.parent)
    said = "".join(laptop.kedge("teardown", "--yes").split())
    assert f"kedge-resultsisalink,soresultscometo{laptop.state}/results/{run}" in said
    assert (laptop.state / "results" / run / "run.log").is_file()
    assert list(laptop.provider().machines()) == []
    assert names(bashrc.parent) == [".bashrc"]


def test_a_state_folder_of_the_users_may_be_reached_through_a_link(laptop: Laptop, tmp_path: Path) -> None:
    """A user who keeps it on another disk has made that link."""
    (tmp_path / "disk").mkdir(mode=0o700)
    laptop.state.symlink_to(tmp_path / "disk")
    assert laptop.json("status", "--all") == []
    assert (tmp_path / "disk" / "ledger.db").is_file()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
