"""Links in a job's data: followed only if the job says so, and the plan shows where they lead."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.core.action_words import describe
from orchestrator.core.actions import SendData
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import (
    Job,
)

Read = Callable[..., Job]
Refuse = Callable[..., BadRequestError]


def test_data_with_a_link_that_leaves_it_is_refused_with_its_line(refuse: Refuse, folder: Path, tmp_path: Path) -> None:
    """Before anything is contacted: in a stranger's repository a link may lead to any file on the laptop."""
    (folder / "set").mkdir()
    (tmp_path / "id_rsa").write_text("key")
    (folder / "set" / "model.bin").symlink_to(tmp_path / "id_rsa")
    error = refuse("name: x\ndata:\n  in: set")
    assert "kedge.yaml:3: `data.in`" in error.what
    assert f"'model.bin' to '{tmp_path / 'id_rsa'}'" in error.what
    assert "follow_links: true" in error.fix


@pytest.mark.parametrize(
    "text", ["data: [{source: set, target: in, follow_links: %s}]", "data: {in: {source: set, follow_links: %s}}"]
)
def test_links_are_followed_if_the_job_says_so_and_the_plan_shows_where_they_lead(
    read: Read, refuse: Refuse, folder: Path, tmp_path: Path, text: str
) -> None:
    """Also links in folders that were reached through links."""
    for name in ("disk", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "disk" / "more").symlink_to("../other/file")
    (folder / "set").mkdir()
    (folder / "set" / "all").symlink_to(tmp_path / "disk")
    (folder / "set" / "here").symlink_to("all/file")
    (folder / "set" / "inside").symlink_to("all")
    mount = read(text % "true").data[0]
    places = (str(tmp_path / "disk"), str(tmp_path / "disk" / "file"), str(tmp_path / "other" / "file"))
    assert mount.follows == places
    assert all(place in describe(SendData(machine_id="m", mount=mount)) for place in places)
    assert "leaves it" in refuse(text % "false").what


def test_many_link_targets_are_shown_by_folder(read: Read, folder: Path, tmp_path: Path) -> None:
    """A single target elsewhere isn't hidden among thousands."""
    (tmp_path / "farm").mkdir()
    (folder / "set").mkdir()
    for number in range(100):
        (tmp_path / "farm" / str(number)).touch()
        (folder / "set" / str(number)).symlink_to(tmp_path / "farm" / str(number))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").touch()
    (folder / "set" / "1000").symlink_to(tmp_path / ".ssh" / "id_rsa")
    mount = read("data: {in: {source: set, follow_links: true}}").data[0]
    assert mount.follows == (str(tmp_path / ".ssh"), str(tmp_path / "farm"))


def test_a_source_that_is_a_link_is_resolved_and_shown(read: Read, folder: Path, tmp_path: Path) -> None:
    """The folder that it leads to is sent, and the plan shows both."""
    (tmp_path / "secrets").mkdir()
    (folder / "images").symlink_to(tmp_path / "secrets")
    mount = read("data: {in: images}").data[0]
    assert (mount.source, mount.written) == (str(tmp_path / "secrets"), "images")
    assert f"{tmp_path / 'secrets'} (which the link images leads to)" in describe(SendData(machine_id="m", mount=mount))


def test_links_that_stay_inside_the_data_are_allowed(read: Read, folder: Path) -> None:
    """Relative or absolute, and even a link to itself."""
    (folder / "set" / "sub").mkdir(parents=True)
    (folder / "set" / "file").touch()
    for name, target in {
        "a": "file",
        "sub/b": "../file",
        "c": "sub/../file",
        "d": str(folder / "set" / "file"),
        "e": "e",
    }.items():
        (folder / "set" / name).symlink_to(target)
    assert read("data: {in: set}").data[0].follows == ()


def test_very_deeply_nested_data_is_read(read: Read, folder: Path) -> None:
    """Results that came from a machine may be nested like this."""
    (folder / "set").mkdir()
    here = os.open(folder / "set", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)
    assert read("data: {in: set}").data[0].follows == ()
    subprocess.run(["rm", "-r", folder / "set"], check=True)
