"""A run for commands to act on, and an environment with kedge."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.runs import JOB, await_running
from tests.support.installed import install_kedge
from tests.support.laptop import Laptop


@pytest.fixture
def run(laptop: Laptop) -> str:
    """A run whose command is running, and doesn't end by itself."""
    laptop.write_job(JOB % "nohup")
    launched = laptop.json("launch", "--yes", "--detach", "--price", "1.99")
    await_running(laptop)
    return str(launched["run"])


@pytest.fixture(scope="session")
def kedges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that kedge is installed in, one for all workers; what commands import is compiled."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "kedge" / "venv"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder.parent / "complete").exists():
            _install_and_compile(folder)
            (folder.parent / "complete").touch()
    return folder


def _install_and_compile(folder: Path) -> None:
    install_kedge(folder)
    own = {"KEDGE_STATE_DIR": str(folder.parent / "state"), "KEDGE_RUNTIME_DIR": str(folder.parent / "runtime")}
    doctor = [f"{folder}/bin/python", "-m", "orchestrator.cli", "doctor"]
    subprocess.run(doctor, cwd=folder.parent, env=os.environ | own, check=True, capture_output=True)
