"""Modes of a run: another one on the machine that is there, and several that follow one another from the launch on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from shlex import quote

import msgspec

from orchestrator.adapters.jobfile.assembly.flags import apply_overrides, given_values
from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.lookup.trust import refuse_foreign_job
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job, read_user_settings
from orchestrator.adapters.jobfile.values.paths import find_overlap
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.app.launch.changing import change_command, with_changes
from orchestrator.app.launch.launching import job_digest, read_launch_job
from orchestrator.app.present import ask_head, present_record
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job, LaunchSpec
from orchestrator.core.ledger import RunRecord
from orchestrator.core.modes import chosen_mode, enter_mode, is_same_mode, leave_mode
from orchestrator.core.plan import Plan
from orchestrator.core.planning.notes import mode_notes
from orchestrator.core.task import Nodes

_OF_THE_MACHINE = ("accelerators", "instance_type", "image_id", "disk_gib", "volumes")
"""What a mode may not change: the machine is there already."""
_OF_AN_ORDER = ("use_spot", "regions", "zone", "max_usd_per_hour", "disk_iops", "disk_mibps")
"""What modes must agree on besides, while the machine is not rented yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A run as a command changes it, before anything is done.

    Attributes:
        before: the run in its machine's mode.
        record: the changed one.
        findings: about its job file.
        notes: what another mode or other variables mean.
    """

    before: RunRecord
    record: RunRecord
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def note_in(self, plan: Plan) -> Plan:
        """Return a plan with notes about what changes."""
        if self.notes:
            return replace(plan, notes=(*self.notes, *plan.notes))
        return with_changes(plan, self.before, self.record)


def change_run(
    app: App,
    record: RunRecord,
    *,
    command: str | None,
    reread: bool,
    mode: str | None,
    overrides: Overrides,
    goes_on: bool,
    continues: bool,
) -> Changed:
    """Return a run with another command, in another mode, or with other variables.

    Raises:
        BadRequestError: as `change_command` and `change_mode`; or the flags contradict each other.
    """
    present = present_record(app, record)
    if mode is not None and (command is not None or reread):
        raise BadRequestError(
            f"--mode and {'--command' if command is not None else '--reread'} contradict each other",
            why="another mode has the command of the job file as it is now",
            fix="give one of them",
        )
    changed, findings = change_command(app, present, command=command, reread=reread)
    changed, notes = change_mode(app, changed, mode, overrides, goes_on=goes_on, continues=continues)
    return Changed(before=present, record=changed, findings=findings if mode is None else (), notes=notes)


def change_mode(
    app: App, record: RunRecord, mode: str | None, overrides: Overrides, *, goes_on: bool, continues: bool
) -> tuple[RunRecord, tuple[str, ...]]:
    """Return the run in another mode or with other variables, and notes about that. Nothing is changed yet.

    The mode and the variables that the run has already go on in the same folders; others begin in folders of their own.

    Args:
        app: the composition root.
        record: the run, in its machine's mode.
        mode: one of the job file's modes as it is now; None for the present one, as it was.
        overrides: values of variables.
        goes_on: other variables alone are no other mode: the present one goes on with them from its checkpoint.
        continues: the mode begins from the newest checkpoint of the present one.

    Raises:
        BadRequestError: the run has no command; the job file, its mode or a variable is invalid; or the mode needs
            another machine, or rights that the run was launched without.
    """
    if mode is None and not overrides.envs:
        if continues:
            raise BadRequestError(
                "--continue begins another mode from a checkpoint, and no mode is named",
                fix="name one with --mode, or set a variable with --env; without both, the present mode goes on anyway",
            )
        return record, ()
    spec = record.spec
    if not spec.job.tasks:
        raise BadRequestError(f"run {spec.run_id} is a plain machine, without a command", fix="launch a job")
    read = _with_variables(app, spec.job, overrides) if mode is None else _read_in_mode(app, spec, mode, overrides)
    job = _on_its_machine(spec, read)
    if is_same_mode(spec, job):
        return record, (f"the run is in mode {mode or spec.job.mode} with these variables already: it goes on there",)
    if mode is None and goes_on:
        changed = replace(spec, job=job)
    else:
        now = app.clock.now()
        outcome, ended_at = _end(app, record, now)
        left = leave_mode(spec, outcome, app.ledger.rentals(spec.run_id), now, ended_at)
        changed = replace(enter_mode(spec, job, left, now, continues=continues), job_digest=job_digest(job))
    return replace(record, spec=changed), mode_notes(spec, changed)


def _end(app: App, record: RunRecord, now: datetime) -> tuple[str, datetime | None]:
    """Return how the present mode has ended, which the machine knows better than the ledger, and when if it knows."""
    report = ask_head(app.world(record.spec.provider), record)
    if report is None or report.sequence != record.spec.sequence:
        return record.outcome, None
    command = report.command
    ago = timedelta(seconds=max(0.0, report.now - command.since))
    return str(command.state), now - ago if command.state.is_over else None


def with_modes(
    app: App, spec: LaunchSpec, job_name: str | None, modes: Sequence[str], overrides: Overrides
) -> LaunchSpec:
    """Return a new run's specification with modes that follow its first one on the same machine.

    Their data is sent before the first one. The longest deadline and the highest budget hold for all together.

    Raises:
        BadRequestError: one of them is invalid, or needs another machine, code, network or rights.
    """
    later = [read_launch_job(app, job_name, mode, overrides) for mode in modes]
    jobs = [spec.job, *later]
    for job in later:
        _refuse_other_machine(spec.job, job, (*_OF_THE_MACHINE, *_OF_AN_ORDER))
        if any(getattr(job, name) != getattr(spec.job, name) for name in ("workdir", "sites", "sudo", "start")):
            raise BadRequestError(
                f"mode {job.mode} has another workdir, network, `sudo` or `start` than mode {spec.job.mode}",
                why="they run on one machine, with the same code and rights",
                fix="make them the same for both, or launch them one by one",
            )
    for job in jobs:
        _refuse_idle(job)
        if job.num_nodes > 1 and all(task.nodes is Nodes.HEAD for task in job.tasks):
            raise BadRequestError(
                f"mode {job.mode} has tasks on the head only, so the other machines would never begin the next mode",
                why="all machines of a run go through its modes together",
                fix="give it a task with `nodes: all`, or launch it as a run of its own",
            )
    budgets = [job.budget_usd for job in jobs]
    shared = {
        "resources": spec.job.resources,
        "data": _shared_data(jobs),
        "time_limit": max(job.time_limit for job in jobs),
        "budget_usd": None if None in budgets else max(filter(None, budgets), default=None),
        "bundled_trainer": any(job.bundled_trainer for job in jobs),
    }
    first, *rest = [msgspec.structs.replace(job, **shared) for job in jobs]
    until = spec.until + (first.time_limit - spec.job.time_limit) if spec.until is not None else None
    return replace(spec, job=first, later=tuple(rest), until=until)


def _shared_data(jobs: Sequence[Job]) -> tuple[DataMount, ...]:
    """Return the data of all modes together, which is there before the first one begins.

    Raises:
        BadRequestError: two modes have different data at one place, or one writes where another one has data.
    """
    data: dict[str, DataMount] = {}
    for mount in (mount for job in jobs for mount in job.data):
        if data.setdefault(mount.target, mount) != mount:
            raise _differing(f"two modes have different data in {mount.target}")
    for task in (task for job in jobs for task in job.tasks):
        if overlap := find_overlap([("", folder) for folder in (*data, *task.result_folders)]):
            raise _differing(f"{overlap[1]} and {overlap[2]}, of different modes, overlap")
    return tuple(data.values())


def _differing(what: str) -> BadRequestError:
    why = "the data of all modes is on the machine before the first one begins"
    return BadRequestError(what, why=why, fix="choose other folders, or launch the first alone, then `start --mode`")


def split_modes(mode: str | None, modes: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the first mode, and those that follow it, from `--mode` or `--modes validate,fast`.

    Raises:
        BadRequestError: both are given, or a name is missing.
    """
    if modes is None:
        return mode, ()
    names = [name.strip() for name in modes.split(",")]
    if mode is not None or not all(names):
        raise BadRequestError(
            "--mode and --modes contradict each other" if mode is not None else f"--modes {modes}: a name is missing",
            fix="write for example --modes validate,fast, and leave --mode out",
        )
    return names[0], tuple(names[1:])


def _read_in_mode(app: App, spec: LaunchSpec, mode: str, overrides: Overrides) -> Job:
    path = Path(spec.job.path)
    if not spec.job.path or not path.is_file():
        raise BadRequestError(
            f"the job file of run {spec.run_id} is gone, so it has no mode {mode}", why=spec.job.path, fix="restore it"
        )
    refuse_foreign_job(path)

    def read(name: str | None, flags: Overrides) -> Job:
        return read_job(
            path,
            mode=name,
            overrides=flags.adding("--provider", "resources.provider", spec.provider),
            environ=app.settings.environ,
            providers=tuple(PROVIDERS),
            sites=read_user_settings(app.settings.config_file),
        )

    job = read(mode, overrides)
    try:
        before = read(chosen_mode(spec.job) or None, Overrides())
    except BadRequestError:
        # The present mode isn't in the file any more: there is nothing to compare with.
        return job
    _refuse_other_machine(before, job)
    return job


def _with_variables(app: App, job: Job, overrides: Overrides) -> Job:
    laptop = Laptop(
        environ=app.settings.environ,
        providers=tuple(PROVIDERS),
        given=given_values(overrides),
        allowed=overrides.allowed,
    )
    return apply_overrides(job, overrides, laptop)


def _refuse_idle(job: Job) -> None:
    if not job.tasks:
        raise BadRequestError(f"mode {job.mode} has no command", fix="write its `run` or `tasks`")


def _on_its_machine(spec: LaunchSpec, job: Job) -> Job:
    """Return a job with the machine, the code and the limits of the run's present one."""
    present = spec.job
    _refuse_idle(job)
    if job.sudo and not present.sudo:
        raise BadRequestError(
            f"mode {job.mode} asks for `sudo`, which run {spec.run_id} was launched without",
            fix="leave it out, or launch that mode as a run of its own",
        )
    return msgspec.structs.replace(
        job,
        name=present.name,
        workdir=present.workdir,
        resources=present.resources,
        num_nodes=present.num_nodes,
        sites=present.sites,
        time_limit=present.time_limit,
        budget_usd=present.budget_usd,
        recover=present.recover,
        sudo=present.sudo,
        start=present.start,
        bundled_trainer=present.bundled_trainer or job.bundled_trainer,
    )


def _refuse_other_machine(present: Job, job: Job, names: Sequence[str] = _OF_THE_MACHINE) -> None:
    """Refuse a mode that asks for another machine than the present one."""
    other = [name for name in names if getattr(job.resources, name) != getattr(present.resources, name)]
    if job.num_nodes != present.num_nodes:
        other.append("num_nodes")
    if other:
        raise BadRequestError(
            f"mode {job.mode} needs another machine than mode {present.mode or 'without a name'}",
            why=f"it differs in {', '.join(other)}",
            fix=f"launch it as a run of its own: `kedge launch --mode {quote(chosen_mode(job))}`",
        )
