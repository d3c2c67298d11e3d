"""Makes virtual environments on top of another Python's packages, without `python -m venv`.

`python -m venv` doesn't work here: on Debian it needs an extra package, and an environment made from another virtual
environment sees only the system's packages, not that environment's. PEP 405 needs only a file and a link.
fact: host-python-without-venv, fact: venv-on-venv
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.errors import AgentError
from ..base.record import Record

_FACTS = Path(__file__).with_name("facts.py")
_ASK_SECONDS = 120.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

# A path may be too long for `#!`, or have spaces: for sh the first lines start the interpreter, for Python they are a
# string. A child of multiprocessing's `spawn` imports the file again under another name: it must not run main again.
_SCRIPT = """#!/bin/sh
''''exec {python} "$0" "$@"
'''
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({function}())
"""
# Fails if there is no pip, because the next pip on PATH would install into another environment.
_PIP = """#!/bin/sh
exec {python} -m pip "$@"
"""


class Package(Record):
    """An installed package: its normalised version, and the time of its installation in Unix seconds."""

    version: str
    installed: float = 0.0


class PythonFacts(Record):
    """A Python's description of itself.

    Attributes:
        version: such as 3.12.3.
        executable: the interpreter; in a virtual environment that of its base.
        sites: a virtual environment's package folders.
        sees_system: whether the interpreter's own packages are visible, too.
        has_pip: whether pip can be imported.
        scripts: its packages' scripts: name -> module:function.
        torches: torch and the packages built for it: name -> package.
    """

    version: str
    executable: str
    sites: tuple[str, ...] = ()
    sees_system: bool = True
    has_pip: bool = False
    scripts: Mapping[str, str] = {}
    torches: Mapping[str, Package] = {}

    @property
    def minor(self) -> str:
        """The minor version, such as 3.12."""
        return ".".join(self.version.split(".")[:2])

    @property
    def library(self) -> str:
        """The package folder in a virtual environment of this version."""
        return f"lib/python{self.minor}/site-packages"


def ask_python(python: str, env: Mapping[str, str]) -> PythonFacts:
    """Ask a Python to describe itself; writes no bytecode files.

    Raises:
        AgentError: it can't be started, or isn't a Python.
    """
    try:
        answer = subprocess.run(
            [python, "-IB", str(_FACTS)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS,
            check=True,
            env=dict(env),
        )
        return _build(json.loads(answer.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError, TypeError) as err:
        raise AgentError(f"{python} can't be used", why=f"{type(err).__name__}: {err}") from err


def make_virtual_environment(folder: Path, base: PythonFacts) -> None:
    """Make a virtual environment in which all packages of `base` can be imported; replace an existing one.

    It also has the scripts of the base's packages, so that they find packages that are installed later. Installers that
    look only at the environment's own packages, such as uv, see torch there, and don't download it again.
    fact: uv-sees-its-environment-only.
    """
    aside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "bin").mkdir(parents=True)
    packages = aside / base.library
    packages.mkdir(parents=True)
    home = Path(base.executable).parent
    sees_system = str(base.sees_system).lower()
    (aside / "pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = {sees_system}\nversion = {base.version}\n"
    )
    (aside / "bin/python").symlink_to(base.executable)
    for name in ("python3", f"python{base.minor}"):
        (aside / "bin" / name).symlink_to("python")
    if base.sites:
        # With this function, so that the folder's own .pth files are processed, too.
        lines = [f"import site; site.addsitedir({path!r})\n" for path in base.sites]
        (packages / "kedge.pth").write_text("".join(lines))
    for name, package in base.torches.items():
        _write_record(packages, name, package.version)
    _write_scripts(aside / "bin", folder / "bin/python", base)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def _build(content: dict[str, Any]) -> PythonFacts:
    torches = {name: Package(**package) for name, package in content["torches"].items()}
    return PythonFacts(**{**content, "sites": tuple(content["sites"]), "torches": torches})


def _write_record(packages: Path, name: str, version: str) -> None:
    """Record a package of the base as installed here, without its dependencies, which are in the base as well."""
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("kedge\n")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD")))


def _write_scripts(folder: Path, python: Path, base: PythonFacts) -> None:
    quoted = shlex.quote(str(python))
    texts = {}
    for name, target in base.scripts.items():
        module, _, function = target.partition(":")
        # Skips invalid script names and entry points that Python couldn't import.
        if _NAME.fullmatch(name) and _TARGET.fullmatch(target) and not name.startswith("python"):
            first = function.partition(".")[0]
            texts[name] = _SCRIPT.format(python=quoted, module=module, first=first, function=function)
    texts |= dict.fromkeys(("pip", "pip3", f"pip{base.minor}"), _PIP.format(python=quoted))
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
