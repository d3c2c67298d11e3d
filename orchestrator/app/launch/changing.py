"""Changes the command of an existing run: `--command`, and `--reread` of its job file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from orchestrator.adapters.jobfile.assembly.sudo import names_sudo
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_job
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job, read_user_settings
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.app.launch.launching import changed_job, job_digest
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.ledger import RunRecord
from orchestrator.core.plan import Plan
from orchestrator.core.planning.notes import change_notes


def change_command(
    app: App, record: RunRecord, *, command: str | None = None, reread: bool = False
) -> tuple[RunRecord, tuple[str, ...]]:
    """Return the changed run, and notes about its job file. Nothing is contacted.

    Args:
        app: the composition root.
        record: the run as the ledger has it.
        command: run this from now on, with or without a checkpoint.
        reread: take `run` and `resume` from the current job file.

    Raises:
        BadRequestError: both are given, the job has no command, a script needs sudo, or the job file is invalid.
    """
    if command is None and not reread:
        return record, changed_job(record)
    job = record.spec.job
    if not job.run:
        raise BadRequestError(f"run {record.run_id} is a plain machine, without a command", fix="launch a job")
    if command is not None and reread:
        raise BadRequestError("--command and --reread contradict each other", fix="give one of them")
    changed = (
        msgspec.structs.replace(job, run=command or "", resume="", resume_args="")
        if command is not None
        else _reread(app, record)
    )
    _refuse_unfit(record, changed)
    digest = job_digest(job) if reread else record.spec.job_digest
    found = (
        (f"`run` and `resume` now come from {job.path}; all else stays as it was",) if reread else changed_job(record)
    )
    return replace(record, spec=replace(record.spec, job=changed, job_digest=digest)), found


def with_changes(plan: Plan, before: RunRecord, after: RunRecord) -> Plan:
    """Note in a plan which command is run from now on, if it has changed."""
    notes = change_notes(before.spec.job, after.spec.job)
    if notes and not plan.actions:
        notes += (f"it is used from the next start on: `kedge stop {plan.run_id}`, then `kedge start {plan.run_id}`",)
    return replace(plan, notes=(*notes, *plan.notes))


def _reread(app: App, record: RunRecord) -> Job:
    job = record.spec.job
    path = Path(job.path)
    if not job.path or not path.is_file():
        raise BadRequestError(
            f"the job file of run {record.run_id} is gone", why=job.path, fix="give the command with --command"
        )
    refuse_foreign_job(path)
    now = read_job(
        path,
        mode=job.mode or None,
        overrides=Overrides().adding("--provider", "resources.provider", record.spec.provider),
        environ=app.settings.environ,
        providers=tuple(PROVIDERS),
        sites=read_user_settings(app.settings.config_file),
    )
    return msgspec.structs.replace(job, run=now.run, resume=now.resume, resume_args=now.resume_args)


def _refuse_unfit(record: RunRecord, changed: Job) -> None:
    if not changed.run.strip():
        raise BadRequestError("there is no command to run", fix="write one after --command, or a `run` in the job file")
    if not changed.sudo and any(map(names_sudo, (changed.run, changed.later_run))):
        raise BadRequestError(
            f"this command uses sudo, which run {record.run_id} was launched without",
            fix="leave it out, or launch a new run with `sudo: true`",
        )
