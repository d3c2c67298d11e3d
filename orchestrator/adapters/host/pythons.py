"""Finds the Python for a job that runs on this computer: usually the user's own environment.

An environment's Python is never run: `.venv` may come with a stranger's repository, and `plan` runs nothing of a job.
Only a `python3` outside any environment is run, because its path doesn't tell its version.
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

from orchestrator.adapters.host.child_environment import lasting_environment
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.values.interpreter import JobPython, PythonOrigin
from orchestrator.core.values.printable import require_printable

_OLDEST = (3, 8)
"""The oldest Python that can run the agent's facts.py."""
_ASK_SECONDS = 20.0
_ANSWER_BYTES = 1 << 16
# Without `site`, so that no installed package is imported or searched for.
_ASK = "import json, platform, sys; print(json.dumps([sys.executable, platform.python_version()]))"
_VERSION = re.compile(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", re.MULTILINE)
_CONDA_PYTHON = re.compile(r"python-(\d+(?:\.\d+)+)-[^-]*\.json")
_CONDA_BASES = ("base", "root")


def find_job_python(job: Job, environ: Mapping[str, str]) -> JobPython:
    """Find the Python on which a job's environment is built on this computer.

    The first of these that exists: the environment that is active in the shell, `.venv` beside the job file, the
    shell's `python3`, kedge's own Python. The bundled trainer gets kedge's own if only that one has torch.

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
    """Find the active environment; conda's base doesn't count, since many users have it active in every shell."""
    if folder := environ.get("VIRTUAL_ENV"):
        return _look_at(Path(folder), PythonOrigin.ACTIVE, fix="`deactivate` it, or create it again")
    folder = environ.get("CONDA_PREFIX", "")
    is_base = environ.get("CONDA_DEFAULT_ENV") in _CONDA_BASES
    return _look_at(Path(folder), PythonOrigin.CONDA, fix="`conda deactivate` it") if folder and not is_base else None


def _find_beside(job_file: str) -> JobPython | None:
    folder = Path(job_file).parent / ".venv"
    if not job_file or not folder.is_dir():
        return None
    return _look_at(folder, PythonOrigin.BESIDE, fix="create it again, or activate another environment")


def _find_base(environ: Mapping[str, str]) -> JobPython | None:
    folder = Path(environ.get("CONDA_PREFIX", ""))
    is_there = folder.is_absolute() and os.access(folder / "bin/python", os.X_OK)
    return _look_at(folder, PythonOrigin.CONDA, fix="`conda deactivate` it") if is_there else None


def _find_shells(environ: Mapping[str, str]) -> JobPython:
    """Ask the `python3` of the shell's PATH for its version; if none answers, return kedge's own Python."""
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
    """Describe an environment without running its Python.

    Raises:
        BadRequestError: it has no executable Python.
    """
    python = folder / "bin/python"
    if not folder.is_absolute() or not os.access(python, os.X_OK):
        raise BadRequestError(
            f"the environment {folder} has no Python that can be run",
            why=f"{python} is missing, or links to a Python that is gone; the job would run in this environment",
            fix=fix,
        )
    environment = require_printable(str(folder))
    return JobPython(
        path=str(Path(environment) / "bin/python"), version=_version(folder), origin=origin, environment=environment
    )


def _version(folder: Path) -> str:
    """Read an environment's Python version from pyvenv.cfg, or else from the folder of its packages."""
    settings = folder / "pyvenv.cfg"
    # It may come with a stranger's repository, and be a pipe.
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
            why=f"a job's environment needs Python {oldest} or newer",
            fix="activate an environment with a newer Python",
        )


def _has_torch(python: JobPython) -> bool:
    """Tell whether torch is installed in an environment, or in a Python outside any environment."""
    if python.path == sys.executable:
        return _own().has_torch
    folder = Path(python.environment or Path(python.path).parent.parent)
    return any(folder.glob("lib*/python3*/*-packages/torch/__init__.py"))


def _own() -> JobPython:
    """Return the Python that runs kedge itself."""
    return JobPython(
        path=sys.executable,
        version=platform.python_version(),
        origin=PythonOrigin.KEDGE,
        environment=sys.prefix if sys.prefix != sys.base_prefix else "",
        has_torch=importlib.util.find_spec("torch") is not None,
    )
