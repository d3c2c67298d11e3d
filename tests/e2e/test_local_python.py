"""A job on this computer gets its own Python environment, which sees the user's; kedge's stays untouched."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.agent.images import make_system_python, own_pip
from tests.agent.standin import write_wheel
from tests.support.laptop import Laptop

JOB = """
    name: toy
    workdir: .
    setup: |
      {setup}
    run: |
      {run}
    supervisor: {{kind: nohup, restarts: 0}}
"""
SEES_TOY = 'python -c "import sys, toy; print(toy.__version__, toy.__file__, sys.prefix)"'
SEES = 'python -c "import sys, importlib.util as u; print(sys.prefix, *map(u.find_spec, sys.argv[1:]))"'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages that can be installed without a network; one of them would break kedge."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in (("toy", "1.0"), ("another", "1.0"), ("pydantic", "1.10.99")):
        shutil.copy(write_wheel(folder / "index", name, version), folder)
    return folder


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    """A user's virtual environment, with a package of the user's."""
    return make_environment(tmp_path_factory.mktemp("user") / "my env", wheels, "toy")


@pytest.fixture
def shell(laptop: Laptop, tmp_path: Path) -> Laptop:
    """A laptop whose shell has no active environment, and whose PATH has a Python without packages."""
    programs = make_system_python(tmp_path / "usr")
    laptop.extra_env |= {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}
    return laptop


def make_environment(folder: Path, wheels: Path, *packages: str) -> Path:
    venv.create(folder, symlinks=True)
    own_pip(folder / "bin")
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--no-index", "--find-links", str(wheels)]
    subprocess.run([*pip, *packages], check=True)
    return folder


def activate(laptop: Laptop, environment: Path) -> None:
    """Do what an environment's own `activate` does."""
    path = laptop.extra_env["PATH"]
    laptop.extra_env |= {"VIRTUAL_ENV": str(environment), "PATH": f"{environment}/bin:{path}"}


def tree(folder: Path) -> dict[str, str]:
    """Return each file's digest; bytecode that Python writes on import doesn't count."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def launch(laptop: Laptop, run: str, setup: str = "", code: int = 0) -> str:
    """Run a job to its end, and return its output."""
    laptop.write_job(JOB.format(run=run, setup=setup or "# nothing"))
    return laptop.kedge("launch", "--yes", code=code)


def test_a_script_sees_the_environment_that_is_active_in_the_shell(shell: Laptop, mine: Path) -> None:
    """Through an environment of the job's own: nothing can be installed into the user's."""
    activate(shell, mine)
    said = launch(shell, SEES_TOY)
    assert f" 1.0 {mine}/lib/" in said
    assert f" {shell.state}/machines/" in said


def test_a_script_sees_the_environment_beside_its_job_file(shell: Laptop, wheels: Path) -> None:
    """If none is active."""
    make_environment(shell.home / ".venv", wheels, "toy")
    said = launch(shell, SEES_TOY)
    assert f" 1.0 {shell.home}/.venv/lib/" in said
    assert "python: 3." in said
    assert "an overlay on .venv (beside the job file; only read)" in said


def test_without_an_environment_a_script_gets_a_new_one(shell: Laptop, kedges: Path) -> None:
    """It has none of kedge's dependencies, although kedge's programs are last on PATH."""
    shell.program = [f"{kedges}/bin/kedge"]
    shell.extra_env["PATH"] += f":{kedges}/bin"
    said = launch(shell, f"{SEES} pydantic rich; command -v python python3 pip")
    assert "/env None None\n" in said
    assert [line.rpartition("/env/")[2] for line in said.splitlines() if "/env/bin/" in line] == [
        "bin/python",
        "bin/python3",
        "bin/pip",
    ]


@pytest.mark.parametrize("installer", ["pip", "python -m pip", "uv pip"])
def test_packages_from_setup_are_in_run_and_nowhere_else(
    shell: Laptop, mine: Path, kedges: Path, wheels: Path, tmp_path: Path, installer: str
) -> None:
    """One is an older pydantic than kedge's: the user's environment and kedge's stay as they are."""
    shell.program = [f"{kedges}/bin/kedge"]
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs/uv").symlink_to(find_uv_bin())
    shell.extra_env["PATH"] += f":{tmp_path}/programs:{kedges}/bin"
    activate(shell, mine)
    (shell.home / "requirements.txt").write_text("toy\nanother\npydantic<2\n")
    before = tree(mine), tree(kedges)
    setup = f"{installer} install --no-index --find-links '{wheels}' -r requirements.txt"
    said = launch(
        shell, 'python -c "import another, pydantic, toy; print(pydantic.__version__, another.__file__)"', setup
    )
    assert f"setup: {installer} install" in said
    assert f" 1.10.99 {shell.state}/machines/" in said
    assert (tree(mine), tree(kedges)) == before
    assert "succeeded" in shell.kedge("status", "--all")
    shell.kedge("plan")


def test_where_kedges_own_environment_is_active_a_job_installs_beside_it(
    shell: Laptop, kedges: Path, wheels: Path
) -> None:
    """The checkout's .venv, or `uv run`: its packages can be imported, and stay as they are."""
    shell.program = [f"{kedges}/bin/kedge"]
    activate(shell, kedges)
    before = tree(kedges)
    setup = f"pip install --no-index --find-links '{wheels}' 'pydantic<2'"
    said = launch(shell, 'python -c "import rich, pydantic; print(pydantic.__version__, rich.__file__)"', setup)
    assert f" 1.10.99 {kedges}/lib/" in said
    assert tree(kedges) == before
    shell.kedge("plan")


def test_the_bundled_trainer_has_kedges_torch_where_the_active_environment_has_none(shell: Laptop, mine: Path) -> None:
    """Packages from its `setup` go into the job's own environment anyway."""
    activate(shell, mine)
    said = launch(shell, f"python -m trainer --help >/dev/null\n      {SEES} torch toy", "command -v pip")
    assert "/env ModuleSpec(name='torch'" in said
    assert f"origin='{sys.prefix}/" in said
    assert "'toy'" not in said
    assert "/env/bin/pip\n" in said
    assert f"an overlay on {sys.prefix} (kedge's own, for its torch; only read)" in said


def test_an_active_environment_that_is_gone_is_refused(shell: Laptop, tmp_path: Path) -> None:
    """Before anything is created: another Python than the user's would be a surprise."""
    activate(shell, tmp_path / "gone")
    launch(shell, "true", code=2)
    assert f"the environment {tmp_path}/gone has no Python that can be run" in shell.errors
    assert "deactivate" in shell.errors
    assert not (shell.state / "machines").exists()
