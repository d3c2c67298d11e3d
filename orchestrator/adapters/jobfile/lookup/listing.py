"""Lists the jobs that can be launched from the current folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.jobfile.document import read_document
from orchestrator.adapters.jobfile.lookup.candidates import is_like_a_job
from orchestrator.adapters.jobfile.lookup.find import named_jobs, nearest_job
from orchestrator.adapters.jobfile.validate import validate_job
from orchestrator.core.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """A job file in a listing.

    Attributes:
        name: the value for `--job`.
        description: the file's first comment.
        problem: why it can't be launched; empty if it can.
    """

    name: str
    path: Path
    description: str = ""
    modes: tuple[str, ...] = ()
    problem: str = ""


def list_jobs(cwd: Path) -> tuple[JobListing, ...]:
    """List the nearest `kedge.yaml`, the job files beside it and in `cwd`, and those that come with kedge."""
    nearest = nearest_job(cwd)
    paths = [nearest] if nearest else []
    paths += [path for path in named_jobs(cwd).values() if path not in paths and is_like_a_job(path)]
    return tuple(_listing(path) for path in paths)


def _listing(path: Path) -> JobListing:
    try:
        document = read_document(path)
        modes = tuple(validate_job(document).modes or ())
    except BadRequestError as err:
        return JobListing(name=path.stem, path=path, problem=err.what)
    return JobListing(name=path.stem, path=path, description=_first_comment(path), modes=modes)


def _first_comment(path: Path) -> str:
    first = path.read_text("utf-8-sig").splitlines()[:1]
    return first[0].lstrip("# ").strip() if first and first[0].startswith("#") else ""
