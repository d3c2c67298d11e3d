"""A job file names folders, and a stranger may have written it: the plan shows which credentials are in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.laptop import Laptop

JOB = """
    name: toy
    workdir: .
    run: sleep 1
    deadline: 10m
    data: {in: %s}
"""


@pytest.fixture
def user(laptop: Laptop, tmp_path: Path) -> Path:
    """The home folder of a user with credentials, with a project in it."""
    home = tmp_path / "user"
    for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".cache/huggingface/token", "set/a.bin"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    laptop.extra_env["HOME"] = str(home)
    return home


def notes(laptop: Laptop, source: str) -> list[str]:
    laptop.write_job(JOB % source)
    return [note for note in laptop.json("plan")["notes"] if "the machine is given" in note]


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("~/.ssh", ["SSH keys (~/.ssh)"]),
        ("~/.ssh/id_ed25519", ["SSH keys (~/.ssh)"]),
        ("~/.netrc", ["passwords of servers (~/.netrc)"]),
        ("~/.cache/huggingface", ["a Hugging Face token (~/.cache/huggingface/token)"]),
        ("~/", ["AWS keys (~/.aws)", "passwords of servers (~/.netrc)", "SSH keys (~/.ssh)"]),
    ],
)
def test_data_with_credentials_are_marked_in_the_plan(
    laptop: Laptop, user: Path, source: str, places: list[str]
) -> None:
    """A folder of credentials, one below the data folder, and a single file."""
    (line,) = notes(laptop, source)
    assert f"data in is sent from {Path(source.replace('~', str(user)))}: the machine is given " in line
    assert all(place in line for place in places)


def test_data_without_credentials_are_not_marked(laptop: Laptop, user: Path) -> None:
    """Code without credentials isn't marked either."""
    assert notes(laptop, str(user / "set")) == []


def test_credentials_behind_links_are_marked(laptop: Laptop, user: Path) -> None:
    """A folder of credentials that is a link, and a link out of the data that is followed."""
    kept = user / "vault" / "keys"
    kept.parent.mkdir()
    (user / ".ssh").rename(kept)
    (user / ".ssh").symlink_to(kept)
    assert "SSH keys (~/.ssh)" in notes(laptop, "~/vault")[0]
    (user / "set" / "more").symlink_to(kept)
    assert "SSH keys (~/.ssh)" in notes(laptop, "{source: ~/set, follow_links: true}")[0]


def test_code_from_a_folder_with_credentials_is_marked(laptop: Laptop, user: Path) -> None:
    """A job file in the home folder, which also contains kedge's own folder; two machines are given the same."""
    laptop.home = user
    laptop.state = user / ".local" / "state" / "kedge"
    (user / "kedge.yaml").write_text("name: toy\nworkdir: .\nrun: sleep 1\nnum_nodes: 2\n")
    (line,) = [note for note in laptop.json("plan")["notes"] if "the machine is given" in note]
    assert line.startswith(f"code is sent from {user}: unless git ignores it, the machine is given ")
    assert "SSH keys (~/.ssh)" in line
    assert "keys of all machines (kedge's state folder)" in line


def test_kedges_own_folder_is_not_sent(laptop: Laptop, user: Path) -> None:
    """The folder itself, a part of it, a parent of it, or a followed link to it: its keys open all machines."""
    laptop.kedge("status")
    (user / "set" / "more").symlink_to(laptop.state / "keys")
    around = [str(laptop.state / below) for below in ("", "keys", "..")]
    jobs = [JOB % source for source in (*around, "{source: ~/set, follow_links: true}")]
    for job in (*jobs, JOB.replace("workdir: .", f"workdir: {laptop.state}") % "train.py"):
        laptop.write_job(job)
        laptop.kedge("plan", code=2)
        assert "is not sent to a machine" in laptop.errors, job
        assert str(laptop.state) in laptop.errors, job
