"""Commands before a launch, or instead of it: offers, jobs, job-schema, export. Nothing is created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.overrides import Overrides


@command("offers")
def offers(_context: Context, *, overrides: Overrides, refresh: bool, json: bool) -> None:
    """List what is for sale now, in the order that `launch` tries.

    With --gpu it lists machines with that GPU, without it those that a launch without --gpu takes.

    Examples:
      kedge offers
      kedge offers --provider do --gpu h100
      kedge offers --provider aws --gpu a10g:4 --spot --region us-east-1,us-west-2
      kedge offers --provider aws --refresh
    """
    from orchestrator.app.launch.launching import find_offers, refresh_offers
    from orchestrator.app.root import App
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import BadRequestError

    app = App()
    if refresh:
        if json:
            raise BadRequestError("--refresh lists no offers, so it has no --json", fix="leave one of them out")
        render.said(refresh_offers(app, overrides))
        return
    found, basis = find_offers(app, overrides)
    render.offers(found, basis, as_json=json)


@command("jobs")
def jobs(_context: Context, *, json: bool) -> None:
    """List the jobs that `launch --job NAME` knows, with their modes.

    Examples:
      kedge jobs
    """
    from pathlib import Path

    from orchestrator.adapters.jobfile.lookup.listing import list_jobs
    from orchestrator.cli.drawing import render

    render.jobs(list_jobs(Path.cwd()), as_json=json)


@command("job-schema")
def job_schema(_context: Context, *, output: str | None) -> None:
    """Write the JSON schema of job files, for editors.

    With it, editors complete and check a job file while you write.

    Examples:
      kedge job-schema --output kedge.schema.json
    """
    from orchestrator.adapters.jobfile.schema import job_schema as make_schema
    from orchestrator.cli.drawing import render

    render.schema(make_schema(), output)


@command("export")
def export(
    _context: Context,
    *,
    to: str | None,
    overrides: Overrides,
    job: str | None,
    mode: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Write what AWS Batch, SageMaker or Slurm need to run a job.

    They go into a folder, with the commands to submit them. Nothing is contacted, and no secret is written. kedge
    itself doesn't launch on these schedulers (there is no --provider batch).

    Examples:
      kedge export --to slurm --job digits --mode full
      kedge export --to batch --gpu a10g:4 --spot
      kedge export --to sagemaker --job digits --output ~/digits-sagemaker --force
    """
    from orchestrator.app.exporting import export_job
    from orchestrator.app.root import App
    from orchestrator.cli.drawing.exports import print_export
    from orchestrator.cli.terminal.say import say

    done, folder = export_job(App(tell=say), to, job, mode, overrides, output=output, force=force)
    print_export(done, folder)
