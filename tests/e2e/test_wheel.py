"""The wheel: what a user installs, in a folder outside of any checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.laptop import Laptop

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the built wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(CHECKOUT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


@pytest.fixture
def installed(laptop: Laptop, site: Path) -> Laptop:
    """A laptop on which the built wheel is installed, in front of everything else."""
    laptop.extra_env["PYTHONPATH"] = str(site)
    laptop.program = [sys.executable, str(site / "bin" / "kedge")]
    return laptop


def test_an_installed_kedge_runs_a_plain_script_from_any_folder(installed: Laptop, site: Path) -> None:
    """A user's own training script that imports nothing of ours, from job file to results."""
    where = subprocess.run(
        [sys.executable, "-c", "import orchestrator, trainer; print(orchestrator.__file__, trainer.__file__)"],
        cwd=installed.home,
        env=installed.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert where.count(str(site)) == 2
    installed.write_job("""
        workdir: .
        run: python train.py
        outputs: [results]
        checkpoints: ckpt
        supervisor: {kind: nohup, restarts: 0}
    """)
    assert "step 3 of 3" in installed.kedge("launch", "--yes")
    (results,) = (installed.home / "kedge-results").glob("home-*")
    assert (results / "output" / "results" / "model.txt").exists()
    assert installed.processes() == []


def test_an_installed_kedge_brings_its_jobs_templates_and_trainer(installed: Laptop) -> None:
    """The packaged job is found, and the bundled trainer is what it would send."""
    assert "digits" in installed.kedge("jobs")
    plan = installed.kedge("plan", "--job", "digits", "--mode", "validate")
    assert "the bundled trainer" in plan
    assert "copy: kedge-results/digits-" in plan
