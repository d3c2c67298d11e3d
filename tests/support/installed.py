"""Installs kedge's wheel and its dependencies into a virtual environment, as `pip install` does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def install_kedge(folder: Path) -> Path:
    """Make the environment and return its site-packages; dependencies are linked from the tests' environment."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for needed in _closure("pip", *_requirements(CHECKOUT / "pyproject.toml")):
        _link_files(needed, site)
    dist = folder / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(dist)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return site


def _requirements(project: Path) -> list[str]:
    import tomllib

    return [_NAME.match(line)[0] for line in tomllib.loads(project.read_text())["project"]["dependencies"]]  # type: ignore[index]


def _closure(*names: str) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        try:
            package = distribution(waiting.pop())
        except PackageNotFoundError:
            # A dependency for another system or Python.
            continue
        if package.name not in found:
            found[package.name] = package
            plain = (line for line in package.requires or () if "extra ==" not in line)
            waiting += [match[0] for line in plain if (match := _NAME.match(line))]
    return list(found.values())


def _link_files(package: Distribution, site: Path) -> None:
    """Link a package's files, as hard links if possible: removing them leaves the tests' own files."""
    for file in package.files or ():
        source, target = Path(str(file.locate())), site / file
        if ".." in file.parts or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
