"""Pythons as images have them: owned by root, managed by the system, without pip or venv. All are real ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pip

from tests.agent.standin import make_environment, write_wheel

_STANDARD = "import sysconfig; print(sysconfig.get_paths()['stdlib'])"


def own_pip(programs: Path) -> None:
    """Install the pip of the tests' own Python in a virtual environment."""
    source = Path(pip.__path__[0])
    site = next(programs.parent.glob("lib/python*/site-packages"))
    for folder in (source, *source.parent.glob("pip-*.dist-info")):
        shutil.copytree(folder, site / folder.name)


def make_image(folder: Path, *, pip: bool = True, **machine: Any) -> Path:
    """Make what a Deep Learning AMI has at /opt/pytorch, and return the folder of its programs."""
    programs = make_environment(folder, **machine)
    if pip:
        own_pip(programs)
    return programs


def make_system_python(folder: Path, *, managed: bool = False, hides: tuple[str, ...] = ()) -> Path:
    """Make a separate interpreter that isn't a virtual environment, so that installers treat it as the system's.

    Args:
        folder: where it is made.
        managed: marked as externally managed (PEP 668).
        hides: modules of the standard library that it lacks, as Debian's lacks ensurepip.
    """
    base = Path(sys.base_prefix)
    real = subprocess.run(
        [str(base / "bin/python3"), "-c", _STANDARD], capture_output=True, text=True, check=True
    ).stdout.strip()
    name = Path(real).name
    library = folder / "lib" / name
    library.mkdir(parents=True)
    for entry in Path(real).iterdir():
        if entry.name not in (*hides, "site-packages", "__pycache__", "EXTERNALLY-MANAGED"):
            (library / entry.name).symlink_to(entry)
    (library / "site-packages").mkdir()
    if managed:
        (library / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=ask apt\n")
    programs = folder / "bin"
    programs.mkdir()
    shutil.copy2((base / "bin" / name).resolve(), programs / "python3")
    for shared in (base / "lib").glob("libpython*"):
        (folder / "lib" / shared.name).symlink_to(shared)
    (programs / "python").symlink_to("python3")
    return programs


def make_wheels(folder: Path, *names: str, **requires: str) -> Path:
    """Make a folder of wheels whose packages only have a version; `requires` is a dependency of one of them."""
    for name in names:
        wheel = write_wheel(folder / "index", name, "1.0", requires=requires.get(name, ""))
        shutil.copy(wheel, folder)
    return folder


def lock(folder: Path) -> None:
    """Make root own a tree: everybody can read it, nobody can write to it."""
    for place, _, names in os.walk(folder):
        for name in ("", *names):
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o555)
