"""Lists the jobs that can be launched from the current folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.jobfile.document import read_document
from orchestrator.adapters.jobfile.lookup.candidates import is_like_a_job
from orchestrator.adapters.jobfile.lookup.find import named_jobs, nearest_job
from orchestrator.adapters.jobfile.models import JobPart, VariantPart
from orchestrator.adapters.jobfile.validate import validate_job
from orchestrator.adapters.jobfile.values.names import is_argument
from orchestrator.core.errors import BadRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """A job file in a listing.

    Attributes:
        name: the value for `--job`.
        description: the file's first comment.
        arguments: mode -> the names of the values that follow it, of modes that take any.
        problem: why it can't be launched; empty if it can.
    """

    name: str
    path: Path
    description: str = ""
    modes: tuple[str, ...] = ()
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMode:
    """A mode of a job file in a table.

    Attributes:
        usage: its name, and the names of its arguments.
        example: its name with values, as `--mode` takes it: the file's own where they fit, else 1.
        runs: how many are planned.
        is_open: it takes values, and so the time that it takes is unknown: it has no expected duration of its own.
    """

    usage: str
    example: str
    runs: int = 1
    is_open: bool = False


def list_modes(path: Path) -> tuple[ListedMode, ...]:
    """List the modes of a job file.

    Raises:
        BadRequestError: the file is invalid.
    """
    part = validate_job(read_document(path.absolute()))
    listed = []
    for name, said in (part.modes or {}).items():
        mode = said or VariantPart()
        arguments, envs = mode.arguments or (), {**(part.envs or {}), **(mode.envs or {})}
        values = [value if is_argument(value := envs.get(each) or "") else "1" for each in arguments]
        usage, example = (" ".join((name, *words)) for words in (arguments, values))
        runs = _planned_runs(part, mode)
        listed.append(ListedMode(usage=usage, example=example, runs=runs, is_open=mode.is_open))
    return tuple(listed)


def planned_budget(path: Path) -> Decimal | None:
    """Return what a job file's planned runs may cost together; None if it doesn't say.

    Raises:
        BadRequestError: the file is invalid.
    """
    expect = validate_job(read_document(path.absolute())).expect
    return expect.budget if expect is not None else None


def _planned_runs(job: JobPart, mode: VariantPart) -> int:
    said = [part.expect.runs for part in (mode, job) if part.expect is not None and part.expect.runs is not None]
    return said[0] if said else int(not mode.arguments)


def list_jobs(cwd: Path) -> tuple[JobListing, ...]:
    """List the nearest `kedge.yaml`, the job files beside it and in `cwd`, and those that come with kedge."""
    nearest = nearest_job(cwd)
    paths = [nearest] if nearest else []
    paths += [path for path in named_jobs(cwd).values() if path not in paths and is_like_a_job(path)]
    return tuple(_listing(path) for path in paths)


def _listing(path: Path) -> JobListing:
    try:
        document = read_document(path)
        modes = validate_job(document).modes or {}
    except BadRequestError as err:
        return JobListing(name=path.stem, path=path, problem=err.what)
    arguments = {name: mode.arguments for name, mode in modes.items() if mode is not None and mode.arguments}
    return JobListing(
        name=path.stem, path=path, description=_first_comment(path), modes=tuple(modes), arguments=arguments
    )


def _first_comment(path: Path) -> str:
    first = path.read_text("utf-8-sig").splitlines()[:1]
    return first[0].lstrip("# ").strip() if first and first[0].startswith("#") else ""
