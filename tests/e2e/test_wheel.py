"""The wheel, as a user installs it, in a folder outside of any checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.checkout import CHECKOUT, copy_tracked
from tests.support.laptop import Laptop
from tests.trainer.foreign import install_package, write_recipe
from tests.trainer.harness import plain_environ


def build(source: Path, dist: Path, *, umask: int = 0o022) -> Path:
    """Build the wheel of a tree, and return it."""
    argv = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(source)]
    subprocess.run(argv, check=True, capture_output=True, umask=umask)
    (wheel,) = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the built wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = build(CHECKOUT, folder / "dist")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


@pytest.fixture
def installed(laptop: Laptop, site: Path) -> Laptop:
    """A laptop on which the built wheel is installed, first on the path."""
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
    """The packaged job is found, and it would send the bundled trainer."""
    assert "digits" in installed.kedge("jobs")
    plan = installed.kedge("plan", "--job", "digits", "--mode", "validate")
    assert "the bundled trainer" in plan
    assert "copy: kedge-results/digits-" in plan


def test_the_installed_trainer_trains_a_recipe_that_is_anywhere(site: Path, tmp_path: Path) -> None:
    """A file, and a package's entry point; beside a `trainer` of the user's own, by the name that is only ours."""
    recipe = write_recipe(tmp_path / "mine")
    (tmp_path / "mine" / "trainer").mkdir()
    (tmp_path / "mine" / "trainer" / "__init__.py").write_text("raise AssertionError('not ours')")
    install_package(tmp_path / "installed", "lines", {"a-line": "line:recipe"})
    environ = {**plain_environ(), "PYTHONPATH": os.pathsep.join(map(str, (site, tmp_path / "installed")))}

    def run(cwd: Path, module: str, *argv: str) -> str:
        command = [sys.executable, "-m", module, *argv]
        done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "succeeded: 4 steps" in run(tmp_path, "trainer", str(recipe), "--output-dir", "a")
    assert "succeeded: 4 steps" in run(tmp_path / "mine", "kedge_trainer", "a-line", "--set", "workers=1")
    assert "A line, fitted by a line." in (tmp_path / "mine" / "output" / "README.md").read_text()
    listed = run(tmp_path / "mine", "kedge_trainer", "recipes").split()
    assert "a-line A line, fitted by a line. (lines)" in " ".join(listed)


def test_uv_installs_and_uninstalls_the_wheel(laptop: Laptop, tmp_path: Path) -> None:
    """With its dependencies from the index, into its own environment, under the package's name."""
    name = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["name"]
    wheel = build(CHECKOUT, tmp_path / "dist")
    laptop.extra_env |= {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    laptop.program = [sys.executable, "-m", "uv"]
    laptop.kedge("tool", "install", "--python", sys.executable, str(wheel))
    laptop.program = [str(tmp_path / "bin" / "kedge")]
    assert "digits" in laptop.kedge("jobs")
    laptop.program = [sys.executable, "-m", "uv"]
    laptop.kedge("tool", "uninstall", name)
    assert not list((tmp_path / "bin").iterdir())


def test_two_builds_of_the_same_source_are_the_same_bytes(tmp_path: Path) -> None:
    """Independent of user, time, folder and umask: others can verify a published wheel."""
    first, second = (copy_tracked(tmp_path / name) for name in ("a", "another folder"))
    for path in second.rglob("*"):
        path.chmod(path.stat().st_mode | 0o020)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    wheels = [build(first, tmp_path / "1"), build(second, tmp_path / "2", umask=0o077)]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = set(wheel.namelist())
    assert [name for name in names if name.endswith(".dist-info/sboms/kedge.cdx.json")]
    assert "orchestrator/_resources/infra/jobs/digits.yaml" in names


def test_a_wheel_contains_nothing_that_git_ignores(tmp_path: Path) -> None:
    """A token file beside the reaper's units, and Python's bytecode, aren't packed."""
    source = copy_tracked(tmp_path / "source")
    for litter in ("infra/reaper/reaper.env", "infra/.env", "infra/selftest/__pycache__/train.cpython-311.pyc"):
        (source / litter).parent.mkdir(exist_ok=True)
        (source / litter).write_text("DIGITALOCEAN_ACCESS_TOKEN=dop_v1_secret")
    with zipfile.ZipFile(build(source, tmp_path / "dist")) as wheel:
        assert [name for name in wheel.namelist() if b"dop_v1_secret" in wheel.read(name)] == []
