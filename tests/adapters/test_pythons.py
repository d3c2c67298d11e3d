"""How the Python of a job on this computer is chosen: kedge runs no Python but the shell's own to find it."""

from __future__ import annotations

import json
import os
import sys
import venv
from pathlib import Path

import pytest

from orchestrator.adapters.host.pythons import find_job_python
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.task import Task
from orchestrator.core.values.interpreter import JobPython, PythonOrigin
from tests.agent.images import make_system_python

VERSION = ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job in a folder of its own."""
    return Job(name="toy", path=str(tmp_path / "kedge.yaml"), tasks=(Task(run="python train.py"),))


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A Python that belongs to no environment."""
    return make_system_python(tmp_path / "usr")


def make_environment(folder: Path) -> Path:
    venv.create(folder, symlinks=True)
    return folder


def make_conda(folder: Path, version: str = "3.12.3") -> Path:
    """Make the parts of a conda environment that kedge reads; its Python leaves a file if it is run."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "bin/python").chmod(0o755)
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta/python-dateutil-2.9.0-pyhd3eb1b0_2.json").write_text("{}")
    (folder / f"conda-meta/python-{version}-h955ad1f_1.json").write_text("{}")
    return folder


def origin_of(job: Job, **environ: str | Path) -> PythonOrigin:
    return find_job_python(job, {name: str(value) for name, value in environ.items()}).origin


def test_pythons_are_tried_in_a_fixed_order(job: Job, system: Path, tmp_path: Path) -> None:
    """Active environment, active conda environment, the job's `.venv`, conda's base, the shell's Python.

    conda's base comes late because it is active in every shell.
    """
    path = {"PATH": system}
    conda = {"CONDA_PREFIX": make_conda(tmp_path / "conda")}
    assert origin_of(job, **path) is PythonOrigin.SHELL
    assert origin_of(job, **path, **conda, CONDA_DEFAULT_ENV="base") is PythonOrigin.CONDA
    make_environment(tmp_path / ".venv")
    assert origin_of(job, **path, **conda, CONDA_DEFAULT_ENV="base") is PythonOrigin.BESIDE
    assert origin_of(job, **path, **conda, CONDA_DEFAULT_ENV="ml") is PythonOrigin.CONDA
    active = {"VIRTUAL_ENV": make_environment(tmp_path / "mine")}
    assert origin_of(job, **path, **conda, **active) is PythonOrigin.ACTIVE


def test_an_environments_version_is_read_without_running_it(job: Job, tmp_path: Path) -> None:
    """A `.venv` may come with a stranger's repository: nothing in it runs before the user has agreed."""
    folder = make_conda(tmp_path / ".venv", "3.10.14")
    assert find_job_python(job, {"PATH": ""}) == JobPython(
        path=f"{folder}/bin/python", version="3.10.14", origin=PythonOrigin.BESIDE, environment=str(folder)
    )
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.7.final.0\n")
    assert find_job_python(job, {"PATH": ""}).version == "3.12.7"
    (folder / "pyvenv.cfg").unlink()
    os.mkfifo(folder / "pyvenv.cfg")
    assert find_job_python(job, {"PATH": ""}).version == "3.10.14"
    assert not (folder / "ran").exists()


def test_the_shells_own_python_is_run_for_its_version(job: Job, system: Path, tmp_path: Path) -> None:
    """Its path doesn't show its version. If it belongs to an environment that is first on PATH, it reports that too."""
    found = find_job_python(job, {"PATH": str(system)})
    assert (found.version, found.environment) == (VERSION, "")
    assert f"{VERSION}, a new environment on top of {found.path}" == found.describe()
    mine = make_environment(tmp_path / "mine")
    assert find_job_python(job, {"PATH": f"{mine}/bin"}).environment == str(mine)


def test_without_any_other_python_a_job_uses_kedges(job: Job, tmp_path: Path) -> None:
    """As on a computer where uv has installed kedge and nothing else."""
    (tmp_path / "bin").mkdir()
    assert find_job_python(job, {"PATH": str(tmp_path / "bin")}).path == sys.executable
    (tmp_path / "bin/python3").write_text("#!/bin/sh\necho what\n")
    (tmp_path / "bin/python3").chmod(0o755)
    assert find_job_python(job, {"PATH": str(tmp_path / "bin")}).path == sys.executable


def test_the_trainers_python_is_the_first_with_torch(job: Job, tmp_path: Path) -> None:
    """The user's own Python if it has torch, otherwise kedge's, which has torch in these tests."""
    mine = make_environment(tmp_path / "mine")
    trainer = Job(name="digits", path=job.path, tasks=(Task(run="python -m trainer digits"),), bundled_trainer=True)
    environ = {"VIRTUAL_ENV": str(mine)}
    found = find_job_python(trainer, environ)
    assert (found.path, found.origin, found.has_torch) == (sys.executable, PythonOrigin.KEDGE, True)
    (packages,) = mine.glob("lib/python*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text("")
    found = find_job_python(trainer, environ)
    assert (found.origin, found.has_torch) == (PythonOrigin.ACTIVE, True)
    assert find_job_python(job, environ).path == found.path


@pytest.mark.parametrize(
    ("broken", "says"),
    [("gone", "has no Python that can be run"), ("dangling", "has no Python that can be run"), ("old", "3.7.9")],
)
def test_an_unusable_environment_is_refused(job: Job, tmp_path: Path, broken: str, says: str) -> None:
    """A system upgrade leaves links to a Python that is gone. To use another one silently would be a surprise."""
    folder = tmp_path / "mine"
    if broken == "dangling":
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/python").symlink_to("/usr/bin/python3.0")
    elif broken == "old":
        make_conda(folder, "3.7.9")
    with pytest.raises(BadRequestError, match=says) as caught:
        find_job_python(job, {"VIRTUAL_ENV": str(folder), "PATH": ""})
    assert caught.value.fix


def test_the_shells_python_gets_no_secrets_from_the_environment(job: Job, tmp_path: Path) -> None:
    """It may be a wrapper script that somebody else wrote."""
    (tmp_path / "bin").mkdir()
    script = f"#!/bin/sh\nenv >{tmp_path}/seen\necho '{json.dumps(['/usr/bin/python3', '3.12.3'])}'\n"
    (tmp_path / "bin/python3").write_text(script)
    (tmp_path / "bin/python3").chmod(0o755)
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    assert find_job_python(job, environ).version == "3.12.3"
    assert "s3cr3t" not in (tmp_path / "seen").read_text()
