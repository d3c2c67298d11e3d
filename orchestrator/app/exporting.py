"""The use case of `kedge export`: writes what another scheduler needs to run a job. Nothing is contacted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from orchestrator.adapters.export.batch import render_batch
from orchestrator.adapters.export.code import read_code
from orchestrator.adapters.export.folder import require_free, write_export
from orchestrator.adapters.export.machine_types import choose_type, resources_at_aws
from orchestrator.adapters.export.model import Export, ExportFile, Target
from orchestrator.adapters.export.not_carried import list_not_carried
from orchestrator.adapters.export.sagemaker import render_sagemaker, training_types
from orchestrator.adapters.export.slurm import render_slurm
from orchestrator.adapters.export.steps import list_steps, render_readme
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.adapters.sync.code.entries import manifest_of
from orchestrator.adapters.sync.code.tree import CodeTree
from orchestrator.app.launch.exposure import refuse_state
from orchestrator.app.launch.launching import read_launch_job
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job


class _AnyShell(dict[str, str]):
    """A shell in which every variable is set: an export needs the names of secrets, and no value."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return ""


def export_job(
    app: App,
    to: str | None,
    job_name: str | None,
    mode: str | None,
    overrides: Overrides,
    *,
    output: str | None,
    force: bool,
) -> tuple[Export, Path]:
    """Render a job for a scheduler, and write it into a folder; return both.

    Raises:
        BadRequestError: the job, a flag or the folder is invalid, or the scheduler can't run the job. Nothing is
            written then.
    """
    target = parse_target(to)
    job = read_launch_job(app, job_name, mode, overrides, _AnyShell(app.settings.environ))
    if not job.tasks:
        raise BadRequestError("there is nothing to export", why="the job has no `run`", fix="name a job with --job")
    refuse_state(job, app.settings.state_dir)
    export = render_export(job, target)
    folder = _folder(app, job, target, output)
    require_free(folder, force=force)
    code = _without(read_code(job, app.settings.state_dir / "code", app.clock), job, folder)
    write_export(export, code, folder)
    return export, folder


def parse_target(to: str | None) -> Target:
    """Read `--to`.

    Raises:
        BadRequestError: there is no such scheduler.
    """
    names = ", ".join(Target)
    if to is None:
        raise BadRequestError("--to is missing", why="it names the scheduler", fix=f"give one of: {names}")
    try:
        return Target(to)
    except ValueError as err:
        raise BadRequestError(f"kedge can't export to {to!r}", fix=f"give one of: {names}") from err


def render_export(job: Job, target: Target) -> Export:
    """Render a job for a scheduler.

    Raises:
        BadRequestError: it can't run the job.
    """
    if target is Target.SLURM:
        return _assemble(job, target, render_slurm(job, _gpus(job)))
    if target is Target.BATCH:
        kind = choose_type(job.resources, target)
        return _assemble(job, target, render_batch(job, kind), kind)
    kind = choose_type(job.resources, target, training_types())
    return _assemble(job, target, render_sagemaker(job, kind), kind)


def _assemble(job: Job, target: Target, rendered: Iterable[ExportFile], kind: InstanceType | None = None) -> Export:
    files = tuple(rendered)
    steps, not_carried = list_steps(job, target, kind), list_not_carried(job, target, kind)
    readme = render_readme(job, target, steps, not_carried)
    more = (
        ExportFile(path="README.md", content=readme.encode()),
        # It isn't code of the job, and may get secrets.env.
        ExportFile(path=".gitignore", content=b"*\n"),
    )
    return Export(target=target, job=job, files=(*files, *more), steps=steps, not_carried=not_carried)


def _gpus(job: Job) -> int:
    """Return how many GPUs a node needs; a cluster's own types are unknown."""
    resources = resources_at_aws(job.resources)
    if resources.accelerators is not None:
        return resources.accelerators.count
    if resources.instance_type is not None:
        return choose_type(resources, Target.SLURM).gpus
    return max((max(task.gpus) + 1 for task in job.tasks if task.gpus), default=0)


def _folder(app: App, job: Job, target: Target, output: str | None) -> Path:
    name = "-".join(filter(None, (job.name, job.mode, target)))
    return app.settings.cwd / (Path(output).expanduser() if output else Path("export") / name)


def _without(tree: CodeTree | None, job: Job, folder: Path) -> CodeTree | None:
    """Leave the export itself out of the code, where the code's folder is no git repository that ignores it."""
    inside = os.path.relpath(folder, job.workdir) if job.workdir else ".."
    if tree is None or inside.startswith(".."):
        return tree
    kept = [entry for entry in tree.manifest.entries if not f"{entry.path}/".startswith(f"{inside}/")]
    return CodeTree(manifest=manifest_of(kept), sources=tree.sources)
