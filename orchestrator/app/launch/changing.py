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
from orchestrator.core.task import Task


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
        BadRequestError: both are given, the job has no command, a script needs sudo, the job file is invalid, or has
            other tasks; or --command is given for a run with several tasks.
    """
    if command is None and not reread:
        return record, changed_job(record)
    job = record.spec.job
    if not job.tasks:
        raise BadRequestError(f"run {record.run_id} is a plain machine, without a command", fix="launch a job")
    if command is not None and reread:
        raise BadRequestError("--command and --reread contradict each other", fix="give one of them")
    tasks = (_commanded(record, command),) if command is not None else _reread(app, record)
    changed = msgspec.structs.replace(job, tasks=tasks)
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


def _commanded(record: RunRecord, command: str) -> Task:
    tasks = record.spec.job.tasks
    if len(tasks) > 1:
        raise BadRequestError(
            f"run {record.run_id} has several tasks: {', '.join(task.name for task in tasks)}",
            why="--command is one command",
            fix="change `run` of a task in the job file, and give --reread",
        )
    return replace(tasks[0], run=command, resume="", resume_args="")


def _reread(app: App, record: RunRecord) -> tuple[Task, ...]:
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
    current = {task.name: task for task in now.tasks}
    if current and current.keys() != {task.name for task in job.tasks}:
        raise BadRequestError(
            f"{job.path} has other tasks than run {record.run_id}",
            why=f"{_list(now)} instead of {_list(job)}",
            fix="launch a new run, or give the tasks their names back",
        )
    return tuple(_with_command_of(task, current.get(task.name, Task(run=""))) for task in job.tasks)


def _with_command_of(task: Task, other: Task) -> Task:
    return replace(task, run=other.run, resume=other.resume, resume_args=other.resume_args)


def _list(job: Job) -> str:
    return ", ".join(task.name or "`run`" for task in job.tasks)


def _refuse_unfit(record: RunRecord, changed: Job) -> None:
    if not all(task.run.strip() for task in changed.tasks):
        raise BadRequestError("there is no command to run", fix="write one after --command, or a `run` in the job file")
    if not changed.sudo and any(names_sudo(script) for task in changed.tasks for script in (task.run, task.later_run)):
        raise BadRequestError(
            f"this command uses sudo, which run {record.run_id} was launched without",
            fix="leave it out, or launch a new run with `sudo: true`",
        )
