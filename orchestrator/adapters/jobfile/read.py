"""Read a job for a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.adapters.jobfile.build import build_job, lay_provider
from orchestrator.adapters.jobfile.document import read_document
from orchestrator.adapters.jobfile.flags import Overrides, given_values, lay_overrides
from orchestrator.adapters.jobfile.laptop import Laptop
from orchestrator.adapters.jobfile.trust import refuse_foreign_settings
from orchestrator.adapters.jobfile.validate import validate_job, validate_settings
from orchestrator.core.job import Job
from orchestrator.core.site import Site

Sites = tuple[tuple[str, Site], ...]
"""What belongs to the user at each provider, by its name."""


def read_job(
    path: Path,
    *,
    mode: str | None,
    overrides: Overrides,
    environ: Mapping[str, str],
    providers: Sequence[str],
    sites: Sites = (),
) -> Job:
    """Read a job file, lay one of its modes and then the flags over it. Nothing is contacted.

    Args:
        path: the job file.
        mode: one of the file's modes; None for the job as it is.
        overrides: the flags.
        environ: where variables and secrets without a value are looked up.
        providers: names that `infra` and `--provider` may have.
        sites: what the user's settings say of each provider.

    Raises:
        BadRequestError: a mistake in the file or in a flag; the file, the key and its line are named.
    """
    laptop = Laptop(
        environ=environ,
        providers=providers,
        sites=sites,
        given=given_values(overrides),
        allowed=frozenset(overrides.allowed),
        allows_proxy_command=overrides.allows_proxy_command,
    )
    document = read_document(path.absolute())
    part = validate_job(document)
    return lay_overrides(build_job(document, part, mode, laptop), overrides, laptop)


def read_user_settings(path: Path) -> Sites:
    """Read the user's settings for all jobs; nothing where there is no such file.

    Raises:
        BadRequestError: a mistake in the file, whose key and line are named; or others may have written it.
    """
    if not path.exists():
        return ()
    refuse_foreign_settings(path)
    document = read_document(path)
    return lay_provider((), validate_settings(document).provider, document)


def plain_machine_job(
    overrides: Overrides, *, environ: Mapping[str, str], providers: Sequence[str], sites: Sites = ()
) -> Job:
    """Make the job of a machine that runs nothing by itself.

    Raises:
        BadRequestError: a flag whose value can't be read.
    """
    laptop = Laptop(environ=environ, providers=providers, allowed=frozenset(overrides.allowed))
    return lay_overrides(Job(name="machine", sites=sites), overrides, laptop)
