"""A run for commands to act on, and an environment with kedge."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.runs import JOB
from tests.support.installed import install_kedge
from tests.support.laptop import Laptop


@pytest.fixture
def run(laptop: Laptop) -> str:
    """A run that doesn't end by itself."""
    laptop.write_job(JOB % "nohup")
    return str(laptop.json("launch", "--yes", "--detach", "--price", "1.99")["run"])


@pytest.fixture(scope="session")
def kedges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that kedge is installed in; what commands import is compiled, for whoever takes a copy."""
    folder = tmp_path_factory.mktemp("kedge") / "venv"
    install_kedge(folder)
    own = {"KEDGE_STATE_DIR": str(folder.parent / "state"), "KEDGE_RUNTIME_DIR": str(folder.parent / "runtime")}
    doctor = [f"{folder}/bin/python", "-m", "orchestrator.cli", "doctor"]
    subprocess.run(doctor, cwd=folder.parent, env=os.environ | own, check=True, capture_output=True)
    return folder
