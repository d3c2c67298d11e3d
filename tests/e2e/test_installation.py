"""`kedge doctor` finds broken parts of kedge itself, in an environment with kedge's installed wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.standin import write_wheel
from tests.support.installed import CHECKOUT
from tests.support.laptop import Laptop

Damage = Callable[[Path], object]
UNFINISHED = shutil.ignore_patterns("*.pyc.*")
"""Bytecode that other workers' commands are writing into the shared environment; it is renamed at the end."""


@pytest.fixture
def environment(kedges: Path, tmp_path: Path) -> Path:
    """The test's own environment: an installer replaces its files and leaves the others'."""
    folder = tmp_path / "venv"
    shutil.copytree(kedges, folder, symlinks=True, ignore=UNFINISHED, copy_function=os.link)
    return folder


@pytest.fixture
def installed(laptop: Laptop, environment: Path) -> Laptop:
    """A laptop that uses it."""
    laptop.program = [f"{environment}/bin/python", "-m", "orchestrator.cli"]
    laptop.extra_env["PYTHONDONTWRITEBYTECODE"] = "1"
    return laptop


def checks(laptop: Laptop, code: int) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in laptop.json("doctor", code=code)}


def remove(site: Path, *patterns: str) -> None:
    for path in (path for pattern in patterns for path in site.glob(pattern)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def replace(file: Path, content: bytes) -> None:
    """Replace a file as installers do, because other environments share it."""
    file.unlink()
    file.write_bytes(content)


def test_a_complete_installation_passes(installed: Laptop, environment: Path) -> None:
    """Every package that kedge's own metadata requires is checked."""
    found = checks(installed, 0)
    asked = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert found["packages"]["found"].startswith(f"{len(asked)}, ")
    assert str(environment) in found["kedge"]["found"]
    assert {found[name]["verdict"] for name in ("kedge", "files", "packages")} == {"ok"}


@pytest.mark.parametrize(
    ("name", "patterns", "says", "mended_by"),
    [
        ("pydantic", ("pydantic", "pydantic-*"), "missing", "'pydantic>=2.9'"),
        ("pydantic", ("pydantic_core*",), "can't be imported: ModuleNotFoundError", "'pydantic>=2.9'"),
        ("msgspec", ("msgspec/_core*",), "can't be imported", "'msgspec>="),
        ("files", ("orchestrator/_resources/templates/boot",), "templates/boot", "install"),
        ("files", ("orchestrator/engine/apply.py",), "1 are missing, such as orchestrator/engine/apply.py", "install"),
    ],
    ids=["a package", "what a package needs", "a part of a package", "templates", "a module"],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    installed: Laptop, environment: Path, name: str, patterns: tuple[str, ...], says: str, mended_by: str
) -> None:
    """Whichever it is, `doctor` itself starts."""
    (site,) = environment.glob("lib/python*/site-packages")
    remove(site, *patterns)
    broken = checks(installed, 1)[name]
    assert broken["verdict"] == "failed"
    assert says in broken["found"]
    assert mended_by in broken["fix"]
    assert f"{environment}/bin/python" in broken["fix"]
    assert says in installed.kedge("doctor", code=1)


def test_a_package_that_is_too_old_is_named_with_its_version(
    installed: Laptop, environment: Path, tmp_path: Path
) -> None:
    """Another package in the same environment required it."""
    index = write_wheel(tmp_path / "index", "pydantic", "1.10.99").parent
    pip = [f"{environment}/bin/python", "-m", "pip", "install", "-q", "--no-index", "--find-links", str(index)]
    subprocess.run([*pip, "pydantic<2"], check=True, capture_output=True)
    said = checks(installed, 1)
    assert said["pydantic"]["found"] == "1.10.99; kedge needs 2.9 or newer"
    assert "files" in said, "the other lines are there all the same"


def test_a_file_that_was_changed_is_a_warning(installed: Laptop, environment: Path) -> None:
    """The change may be deliberate."""
    (script,) = environment.glob("lib/python*/site-packages/orchestrator/_resources/templates/boot/ask.sh.j2")
    replace(script, b"#!/bin/sh\n")
    files = checks(installed, 0)["files"]
    assert (files["verdict"], "ask.sh.j2" in files["found"]) == ("warning", True)


def test_where_kedge_cannot_start_it_says_what_is_broken(installed: Laptop, environment: Path) -> None:
    """Without the library that parses the command line there are no commands."""
    (site,) = environment.glob("lib/python*/site-packages")
    remove(site, "invoke", "invoke-*")
    for command in ("status", "doctor"):
        assert installed.kedge(command, code=1) == ""
        assert installed.errors.startswith("error: kedge can't start: ")
        assert f"{environment}/bin/python -m pip install --force-reinstall 'invoke>=2.2'" in installed.errors


@pytest.mark.parametrize(
    ("place", "fix"),
    [
        ("share/uv/tools/kedge-x", "uv tool upgrade --reinstall kedge-x"),
        ("pipx/venvs/kedge-x", "pipx reinstall kedge-x"),
    ],
)
def test_uv_and_pipx_are_named_to_repair_their_installations(
    laptop: Laptop, kedges: Path, tmp_path: Path, place: str, fix: str
) -> None:
    """Their environments have no pip of their own, or none that should be used."""
    folder = tmp_path / place
    shutil.copytree(kedges, folder, symlinks=True, ignore=UNFINISHED, copy_function=os.link)
    (site,) = folder.glob("lib/python*/site-packages")
    remove(site, "tenacity", "tenacity-*")
    laptop.program = [f"{folder}/bin/python", "-m", "orchestrator.cli"]
    assert json.loads(laptop.kedge("doctor", "--json", code=1))[-1]["fix"] == fix
