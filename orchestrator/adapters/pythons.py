"""Find the Python of a job that runs on this computer: the user's own environment, as a rule.

An environment is only looked at, never run: `.venv` may come with a stranger's repository, and `plan` starts nothing
of a job's. Only a `python3` that belongs to no environment is asked, since its path doesn't tell its version.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.children import lasting_environment
from orchestrator.core.errors import BadRequestError
from orchestrator.core.interpreter import JobPython, PythonOrigin
from orchestrator.core.job import Job
from orchestrator.core.printable import require_printable

_OLDEST = (3, 8)
"""What the agent's pythonfacts.py, which each such Python runs, is written for."""
_ASK_SECONDS = 20.0
_ANSWER_BYTES = 1 << 16
# Without `site`: nothing that is installed is imported, nor looked for.
_ASK = "import json, platform, sys; print(json.dumps([sys.executable, platform.python_version()]))"
_VERSION = re.compile(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", re.MULTILINE)
_CONDA_PYTHON = re.compile(r"python-(\d+(?:\.\d+)+)-[^-]*\.json")
_CONDA_BASES = ("base", "root")


def find_job_python(job: Job, environ: Mapping[str, str]) -> JobPython:
    """Find the Python on top of which a job's environment is made on this computer.

    It is that of the first of these: the environment that is active in the shell, `.venv` beside the job file, what
    the shell finds as `python3`, what kedge runs on. The bundled trainer gets kedge's own where that has torch and the
    other hasn't.

    Raises:
        BadRequestError: the environment is broken, or its Python is too old.
    """
    found = _find_active(environ) or _find_beside(job.path) or _find_base(environ) or _find_shells(environ)
    _refuse_old(found)
    if not job.bundled_trainer:
        return found
    found = replace(found, has_torch=_has_torch(found))
    own = _own()
    return own if own.has_torch and not found.has_torch else found


def _find_active(environ: Mapping[str, str]) -> JobPython | None:
    """A conda installation's base environment is active in every shell of many users: no choice of theirs."""
    if folder := environ.get("VIRTUAL_ENV"):
        return _look_at(Path(folder), PythonOrigin.ACTIVE, fix="`deactivate` it, or make it anew")
    folder = environ.get("CONDA_PREFIX", "")
    is_base = environ.get("CONDA_DEFAULT_ENV") in _CONDA_BASES
    return _look_at(Path(folder), PythonOrigin.CONDA, fix="`conda deactivate` it") if folder and not is_base else None


def _find_beside(job_file: str) -> JobPython | None:
    folder = Path(job_file).parent / ".venv"
    if not job_file or not folder.is_dir():
        return None
    return _look_at(folder, PythonOrigin.BESIDE, fix="make it anew, or activate another environment")


def _find_base(environ: Mapping[str, str]) -> JobPython | None:
    folder = Path(environ.get("CONDA_PREFIX", ""))
    is_there = folder.is_absolute() and os.access(folder / "bin/python", os.X_OK)
    return _look_at(folder, PythonOrigin.CONDA, fix="`conda deactivate` it") if is_there else None


def _find_shells(environ: Mapping[str, str]) -> JobPython:
    """Ask the `python3` of the shell's PATH; where there is none that answers, kedge's own is what there is."""
    python = shutil.which("python3", path=environ.get("PATH", os.defpath))
    try:
        answer = subprocess.run(
            [python or sys.executable, "-ISc", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS,
            check=True,
            env=lasting_environment(environ),
        )
        path, version = map(str, json.loads(answer.stdout[:_ANSWER_BYTES]))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        path, version = sys.executable, platform.python_version()
    folder = Path(require_printable(path)).parent.parent
    return JobPython(
        path=path,
        version=require_printable(version),
        origin=PythonOrigin.SHELL,
        environment=str(folder) if (folder / "pyvenv.cfg").exists() else "",
    )


def _look_at(folder: Path, origin: PythonOrigin, *, fix: str) -> JobPython:
    """Read what an environment is, without running its Python.

    Raises:
        BadRequestError: it has no Python that could be run.
    """
    python = folder / "bin/python"
    if not folder.is_absolute() or not os.access(python, os.X_OK):
        raise BadRequestError(
            f"the environment {folder} has no Python that can be run",
            why=f"{python} is missing, or leads to a Python that is gone; the job would run in this environment",
            fix=fix,
        )
    environment = require_printable(str(folder))
    return JobPython(
        path=str(Path(environment) / "bin/python"), version=_version(folder), origin=origin, environment=environment
    )


def _version(folder: Path) -> str:
    """Read an environment's version; that of the folder of its packages where it says none."""
    settings = folder / "pyvenv.cfg"
    # A stranger may have put a pipe there.
    if settings.is_file():
        with settings.open("rb") as file:
            said = _VERSION.search(file.read(_ANSWER_BYTES).decode(errors="replace"))
        if said:
            return ".".join(said[1].split(".")[:3])
    conda = (_CONDA_PYTHON.fullmatch(path.name) for path in folder.glob("conda-meta/python-3*.json"))
    named = (path.name.removeprefix("python") for path in folder.glob("lib/python3.*"))
    return next((match[1] for match in conda if match), next(named, "3"))


def _refuse_old(python: JobPython) -> None:
    numbers = tuple(int(number) for number in python.version.split(".")[:2] if number.isdigit())
    if len(numbers) == 2 and numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise BadRequestError(
            f"{python.path} is Python {python.version}",
            why=f"a job's environment can be made on Python {oldest} and newer",
            fix="activate an environment with a newer Python",
        )


def _has_torch(python: JobPython) -> bool:
    """Tell whether torch is among the packages of an environment, or of a Python that belongs to none."""
    if python.path == sys.executable:
        return _own().has_torch
    folder = Path(python.environment or Path(python.path).parent.parent)
    return any(folder.glob("lib*/python3*/*-packages/torch/__init__.py"))


def _own() -> JobPython:
    """Return what kedge itself runs on."""
    return JobPython(
        path=sys.executable,
        version=platform.python_version(),
        origin=PythonOrigin.KEDGE,
        environment=sys.prefix if sys.prefix != sys.base_prefix else "",
        has_torch=importlib.util.find_spec("torch") is not None,
    )
