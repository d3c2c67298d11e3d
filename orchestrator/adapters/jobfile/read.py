"""Reads job files and the user's settings: the entry points of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.adapters.jobfile.assembly.check import expand_checks
from orchestrator.adapters.jobfile.assembly.chosen_mode import choose_mode
from orchestrator.adapters.jobfile.assembly.flags import apply_overrides, given_values, taken_names
from orchestrator.adapters.jobfile.assembly.job import build_job, merge_provider
from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.document import Document, read_document
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_settings
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.validate import validate_job, validate_settings
from orchestrator.adapters.jobfile.values.nodes import find_unfit
from orchestrator.core.errors import BadRequestError, JobKeyError
from orchestrator.core.job import Job
from orchestrator.core.task_order import check_tasks
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
        mode: one of the file's modes, with values for its arguments, such as `custom 100 512`; None for none.
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
        taken=taken_names(overrides),
        allowed=overrides.allowed,
        allows_proxy_command=overrides.allows_proxy_command,
    )
    document = read_document(path.absolute())
    part = validate_job(document)
    chosen = choose_mode(document.path, part, mode)
    job = apply_overrides(build_job(document, part, chosen, laptop), overrides, laptop)
    source_map = SourceMap(document=document, mode=job.mode)
    try:
        check_tasks(job)
    except JobKeyError as err:
        raise _at_line(document, job.mode, err) from err
    _refuse_unfit_nodes(job, source_map, overrides)
    return expand_checks(job, source_map)


def _refuse_unfit_nodes(job: Job, source_map: SourceMap, overrides: Overrides) -> None:
    """Refuse what doesn't fit the number of machines, which a flag may have changed."""
    for key, err in find_unfit(job):
        if overrides.has("num_nodes"):
            raise BadRequestError(f"--num-nodes: {err.what}", why=err.why, fix=err.fix)
        raise source_map.refusal((key,), err.what, why=err.why, fix=err.fix)


@contextmanager
def adding_line(job: Job) -> Iterator[None]:
    """Add file and line to an error about a key of a job, unless the job's file can't be read any more.

    Raises:
        BadRequestError: the error.
    """
    try:
        yield
    except JobKeyError as err:
        try:
            document = read_document(Path(job.path))
        except BadRequestError:
            raise err from None
        raise _at_line(document, job.mode if err.mode is None else err.mode, err) from err


def _at_line(document: Document, mode: str, error: JobKeyError) -> BadRequestError:
    source_map = SourceMap(document=document, mode=mode)
    return source_map.refusal(error.key_path, error.fault, why=error.why, fix=error.fix)


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
