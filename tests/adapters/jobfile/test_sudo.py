"""Which jobs may use sudo: those whose file allows it, and SkyPilot tasks whose scripts call it."""

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
def test_a_script_that_calls_sudo_is_refused_with_the_key_that_allows_it(tmp_path: Path, key: str, script: str) -> None:
    """With its line, before anything is contacted."""
    lines = "\n".join(f"  {line}" for line in script.splitlines())
    with pytest.raises(BadRequestError) as caught:
        read(tmp_path, f"deadline: 1h\n{key}: |\n{lines}\n")
    assert f"`{key}`" in str(caught.value)
    assert "kedge.yaml:2" in str(caught.value)
    assert "add `sudo: true`" in str(caught.value)


@pytest.mark.parametrize("script", ["pip install pseudo", "# sudo make me a sandwich\ntrue", "cat sudo.md", "my-sudo"])
def test_a_script_that_does_not_call_sudo_is_accepted(tmp_path: Path, script: str) -> None:
    """Comments, and words that only contain `sudo`, don't count."""
    lines = "\n".join(f"  {line}" for line in script.splitlines())
    assert not read(tmp_path, f"deadline: 1h\nrun: |\n{lines}\n").sudo


def test_a_job_that_asks_for_sudo_has_it(tmp_path: Path) -> None:
    """Even if its scripts don't call it, a program that they run may need it. A mode may change the setting."""
    text = "deadline: 1h\nsudo: true\nrun: sh install.sh\nmodes: {plain: {sudo: false}}\n"
    assert read(tmp_path, text).sudo
    assert not read(tmp_path, text, mode="plain").sudo
    with pytest.raises(BadRequestError, match="uses sudo"):
        read(tmp_path, text.replace("sh install.sh", "sudo id"), mode="plain")


def test_a_skypilot_task_has_sudo_if_its_scripts_call_it(tmp_path: Path) -> None:
    """It was written for machines whose user has sudo. `sudo: false` in the task still counts."""
    task = "resources: {infra: aws}\nsetup: sudo apt-get update\nrun: python train.py\n"
    assert read(tmp_path, task).sudo
    assert not read(tmp_path, task.replace("sudo ", "")).sudo
    with pytest.raises(BadRequestError, match="uses sudo"):
        read(tmp_path, task + "sudo: false\n")
