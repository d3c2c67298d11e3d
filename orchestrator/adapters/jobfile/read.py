"""Read a job for a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.jobfile.build import Laptop, build_job
from orchestrator.adapters.jobfile.document import read_document
from orchestrator.adapters.jobfile.flags import Overrides, lay_overrides, parse_env_flags
from orchestrator.adapters.jobfile.validate import validate_job
from orchestrator.core.job import Job


def read_job(
    path: Path,
    *,
    mode: str | None,
    overrides: Overrides,
    environ: Mapping[str, str],
    providers: Sequence[str],
) -> Job:
    """Read a job file, lay one of its modes and then the flags over it. Nothing is contacted.

    Args:
        path: the job file.
        mode: one of the file's modes; None for the job as it is.
        overrides: the flags.
        environ: where variables and secrets without a value are looked up.
        providers: names that `infra` and `--provider` may have.

    Raises:
        BadRequestError: a mistake in the file or in a flag; the file, the key and its line are named.
    """
    laptop = Laptop(environ=environ, providers=providers)
    document = read_document(path.absolute())
    part = validate_job(document)
    # A variable that the file leaves open may come from a flag.
    known = replace(laptop, environ={**environ, **parse_env_flags(overrides, laptop)})
    return lay_overrides(build_job(document, part, mode, known), overrides, laptop)


def plain_machine_job(overrides: Overrides, *, environ: Mapping[str, str], providers: Sequence[str]) -> Job:
    """Make the job of a machine that runs nothing by itself.

    Raises:
        BadRequestError: a flag whose value can't be read.
    """
    return lay_overrides(Job(name="machine"), overrides, Laptop(environ=environ, providers=providers))
