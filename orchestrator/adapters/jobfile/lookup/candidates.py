"""Names of jobs and modes for shell completion and listings. Loads nothing heavy."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.lookup.find import JOB_FILE, find_job, named_jobs
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_job
from orchestrator.core.errors import BadRequestError

MAX_READ = 64 * 1024
"""Bytes at the beginning of a file in which a job's first key must be."""

# Folders hold YAML files of many programs; a job has one of these keys at its top level.
_LIKE_A_JOB = re.compile(rb"^(?:run|resources|modes):", re.MULTILINE)

_MOST = 200
"""The most files that are read for one completion."""


def is_like_a_job(path: Path) -> bool:
    """Tell whether a file is probably a job, by its name or its first keys."""
    try:
        with path.open("rb") as file:
            return path.name == JOB_FILE or _LIKE_A_JOB.search(file.read(MAX_READ)) is not None
    except OSError:
        return False


def job_names(cwd: Path) -> tuple[str, ...]:
    """Name the jobs that `--job NAME` accepts here, except files that another user may have written."""
    found = islice(named_jobs(cwd).items(), _MOST)
    return tuple(name for name, path in found if is_like_a_job(path) and _is_trusted(path))


def mode_names(cwd: Path, job: str | None) -> tuple[str, ...]:
    """Name the modes of a job file; none if it can't be read, or another user may have written it.

    Args:
        cwd: the current folder.
        job: the value of `--job`; None for the nearest job file.
    """
    from orchestrator.adapters.jobfile.document import read_document  # noqa: PLC0415 - YAML is for this alone

    with suppress(BadRequestError, OSError):
        path = find_job(cwd, job)
        modes = read_document(path).value.get("modes") if path is not None else None
        return tuple(modes) if isinstance(modes, dict) else ()
    return ()


def _is_trusted(path: Path) -> bool:
    if path.parent == resource("infra", "jobs"):
        return True
    try:
        refuse_foreign_job(path)
    except (BadRequestError, OSError):
        return False
    return True
