"""Reads job files and the user's settings: the entry points of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.adapters.jobfile.assembly.flags import apply_overrides, given_values
from orchestrator.adapters.jobfile.assembly.job import build_job, merge_provider
from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.document import Document, read_document
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_settings
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.validate import validate_job, validate_settings
from orchestrator.core.job import Job
from orchestrator.core.values.site import Site

Sites = tuple[tuple[str, Site], ...]
"""Provider name -> the user's own network and tags there."""


def read_job(
    path: Path,
    *,
    mode: str | None,
    overrides: Overrides,
    environ: Mapping[str, str],
    providers: Sequence[str],
    sites: Sites = (),
) -> Job:
    """Read a job file, and apply one of its modes, then the flags. Nothing is contacted.

    Args:
        path: the job file.
        mode: one of the file's modes; None for none.
        overrides: the flags.
        environ: the source of variables and secrets without a value.
        providers: names that are valid in `infra` and `--provider`.
        sites: what the user's settings say about each provider.

    Raises:
        BadRequestError: the file or a flag is invalid; the error names the file, the key and its line.
    """
    laptop = Laptop(
        environ=environ,
        providers=providers,
        sites=sites,
        given=given_values(overrides),
        allowed=overrides.allowed,
        allows_proxy_command=overrides.allows_proxy_command,
    )
    document = read_document(path.absolute())
    part = validate_job(document)
    return apply_overrides(build_job(document, part, mode, laptop), overrides, laptop)


def read_user_settings(path: Path) -> Sites:
    """Read the user's settings for all jobs; empty if there is no such file.

    Raises:
        BadRequestError: the file is invalid, and the error names key and line; or others may have written it.
    """
    document = _read_settings(path)
    return merge_provider((), validate_settings(document).provider, document) if document else ()


def is_reaped_elsewhere(path: Path) -> bool:
    """Tell whether the user's settings say that `kedge reap` runs on another computer.

    Raises:
        BadRequestError: as `read_user_settings`.
    """
    document = _read_settings(path)
    return document is not None and validate_settings(document).reaper == "elsewhere"


def _read_settings(path: Path) -> Document | None:
    if not path.exists():
        return None
    refuse_foreign_settings(path)
    return read_document(path)


def plain_machine_job(
    overrides: Overrides, *, environ: Mapping[str, str], providers: Sequence[str], sites: Sites = ()
) -> Job:
    """Return the job of a machine that runs no command.

    Raises:
        BadRequestError: a flag's value is invalid.
    """
    laptop = Laptop(environ=environ, providers=providers, allowed=overrides.allowed)
    return apply_overrides(Job(name="machine", sites=sites), overrides, laptop)
