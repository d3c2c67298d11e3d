"""Names of jobs and modes for completion and listing. Reads files, and loads nothing heavy."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

from orchestrator.adapters.jobfile.find import JOB_FILE, find_job, named_jobs
from orchestrator.adapters.jobfile.trust import refuse_foreign_job
from orchestrator.adapters.resources import resource
from orchestrator.core.errors import BadRequestError

MAX_READ = 64 * 1024
"""Bytes of a file in which a job shows itself."""

# Folders hold YAML of many programs; a job has one of these at its top.
_LIKE_A_JOB = re.compile(rb"^(?:run|resources|modes):", re.MULTILINE)

_MOST = 200
"""Files that are looked at while somebody waits for a Tab."""


def is_like_a_job(path: Path) -> bool:
    """Tell whether a file may be a job, by its name or its first keys."""
    try:
        with path.open("rb") as file:
            return path.name == JOB_FILE or _LIKE_A_JOB.search(file.read(MAX_READ)) is not None
    except OSError:
        return False


def job_names(cwd: Path) -> tuple[str, ...]:
    """Name the jobs that `--job NAME` takes here, but those that another user may have written."""
    found = islice(named_jobs(cwd).items(), _MOST)
    return tuple(name for name, path in found if is_like_a_job(path) and _is_trusted(path))


def mode_names(cwd: Path, job: str | None) -> tuple[str, ...]:
    """Name the modes of a job file; none where it can't be read, or another user may have written it.

    Args:
        cwd: where the command is given.
        job: what `--job` says; None for the nearest job file.
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
