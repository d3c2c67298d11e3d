"""Who becomes root on a machine: a job whose file says so, and one that knows SkyPilot's words only."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job


def read(folder: Path, text: str, mode: str | None = None) -> Job:
    path = folder / "kedge.yaml"
    path.write_text(text)
    return read_job(path, mode=mode, overrides=Overrides(), environ={}, providers=("aws", "do", "local"))


@pytest.mark.parametrize("key", ["setup", "run"])
@pytest.mark.parametrize(
    "script",
    [
        "sudo apt-get install -y ffmpeg",
        "apt update || sudo -n apt update",
        "/usr/bin/sudo id",
        "$(sudo id)",
        "a\nsudo b",
    ],
)
def test_a_script_that_names_sudo_is_refused_with_the_way_to_have_it(tmp_path: Path, key: str, script: str) -> None:
    """With its line, before anything is contacted."""
    lines = "\n".join(f"  {line}" for line in script.splitlines())
    with pytest.raises(BadRequestError) as caught:
        read(tmp_path, f"deadline: 1h\n{key}: |\n{lines}\n")
    assert f"`{key}`" in str(caught.value)
    assert "kedge.yaml:2" in str(caught.value)
    assert "add `sudo: true`" in str(caught.value)


@pytest.mark.parametrize("script", ["pip install pseudo", "# sudo make me a sandwich\ntrue", "cat sudo.md", "my-sudo"])
def test_a_script_without_the_word_is_nothing_special(tmp_path: Path, script: str) -> None:
    """Nor a comment, nor another word that holds it."""
    lines = "\n".join(f"  {line}" for line in script.splitlines())
    assert not read(tmp_path, f"deadline: 1h\nrun: |\n{lines}\n").sudo


def test_a_job_that_asks_for_sudo_has_it(tmp_path: Path) -> None:
    """Whatever its scripts name: what they call may need it; a mode may ask, or do without."""
    text = "deadline: 1h\nsudo: true\nrun: sh install.sh\nmodes: {plain: {sudo: false}}\n"
    assert read(tmp_path, text).sudo
    assert not read(tmp_path, text, mode="plain").sudo
    with pytest.raises(BadRequestError, match="uses sudo"):
        read(tmp_path, text.replace("sh install.sh", "sudo id"), mode="plain")


def test_a_task_of_skypilots_has_sudo_where_it_names_it(tmp_path: Path) -> None:
    """It was written for a machine whose user has it; one that says no means it."""
    task = "resources: {infra: aws}\nsetup: sudo apt-get update\nrun: python train.py\n"
    assert read(tmp_path, task).sudo
    assert not read(tmp_path, task.replace("sudo ", "")).sudo
    with pytest.raises(BadRequestError, match="uses sudo"):
        read(tmp_path, task + "sudo: false\n")
