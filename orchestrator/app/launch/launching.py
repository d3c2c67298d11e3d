"""Use cases that launch or resume a run. They read job files, so this module loads pydantic."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec

from orchestrator.adapters.host.pythons import find_job_python
from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.lookup.find import find_job
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import adding_line, plain_machine_job, read_job, read_user_settings
from orchestrator.adapters.providers import PROVIDERS, is_here, refuse_unsupported
from orchestrator.adapters.sync.worktree.unsent import find_unsent
from orchestrator.app.launch.exposure import exposure_notes, refuse_state
from orchestrator.app.launch.reaper import with_reaper
from orchestrator.app.launch.ssh_access import with_ssh_access
from orchestrator.app.results import require_own_folder, results_folder
from orchestrator.app.root import App
from orchestrator.core.actions import CreateMachine, SendCode, StageCode
from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.job import Job, LaunchSpec, Resources
from orchestrator.core.ledger import RunRecord
from orchestrator.core.offer import Offer
from orchestrator.core.plan import AfterStart, Plan
from orchestrator.core.planning.launch import plan_launch
from orchestrator.core.ports import Provider
from orchestrator.core.values.network import refuse_everybody
from orchestrator.core.values.unsent import Unsent
from orchestrator.engine.observing.observe import find_failed_offer, observe_run
from orchestrator.engine.observing.reconcile import find_last_loss
from orchestrator.engine.steps.run_config import read_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What flags may change of a resumed run.

    Attributes:
        recover: None keeps it.
        without_reaper: False keeps it.
    """

    time_limit: timedelta | None = None
    budget_usd: Decimal | None = None
    keep: bool = False
    recover: bool | None = None
    ssh_from: str = ""
    without_reaper: bool = False


def new_launch(
    app: App,
    job_name: str | None,
    mode: str | None,
    overrides: Overrides,
    *,
    keep: bool = False,
    recover: bool | None = None,
    without_reaper: bool = False,
) -> LaunchSpec:
    """Read the job, apply mode and flags, and create the run's id. Nothing is contacted.

    Raises:
        BadRequestError: any of these is invalid.
    """
    job = read_launch_job(app, job_name, mode, overrides)
    recover = job.recover if recover is None else recover
    if recover and not job.tasks:
        raise BadRequestError("a machine without a command can't be recovered", fix="leave --recover out")
    provider = job.resources.provider or app.settings.provider
    refuse_unsupported(provider, job.resources_at(provider))
    ssh_from = app.settings.ssh_from
    python = find_job_python(job, app.settings.environ) if job.tasks and is_here(provider) else None
    now = app.clock.now()
    run_id = f"{job.name}-{now:%m%d}-{_random_word()}"
    return LaunchSpec(
        run_id=run_id,
        provider=provider,
        job=job,
        folder=str(app.settings.cwd),
        results=str(results_folder(_results_base(app, job), run_id)),
        job_digest=job_digest(job),
        keep=keep,
        recover=recover,
        until=now + job.time_limit if recover else None,
        ssh_from=ssh_from,
        without_reaper=without_reaper,
        python=python,
    )


def job_digest(job: Job) -> str:
    """Return the digest of a job's file, which tells whether it has changed; empty for a job without a file."""
    path = Path(job.path)
    return hashlib.sha256(path.read_bytes()).hexdigest() if job.path and path.is_file() else ""


def changed_job(record: RunRecord) -> tuple[str, ...]:
    """Note that a job's file has changed since the launch: a run keeps the job that it was launched with."""
    spec = record.spec
    if not spec.job_digest or job_digest(spec.job) == spec.job_digest:
        return ()
    return (f"{spec.job.path} has changed since the launch; this run keeps the job as it was (a new launch uses it)",)


def _results_base(app: App, job: Job) -> Path:
    """Return the folder of results: beside the job file; for a job that comes with kedge, where it is launched."""
    base = Path(job.path).parent if job.path else app.settings.cwd
    is_ours = base.is_relative_to(resource("infra"))
    return app.settings.cwd if is_ours or not os.access(base, os.W_OK) else base


def read_launch_job(
    app: App, job_name: str | None, mode: str | None, overrides: Overrides, environ: Mapping[str, str] | None = None
) -> Job:
    """Find and read a job file, in another shell's `environ` if given; else plan a plain machine, and say so."""
    path = find_job(app.settings.cwd, job_name)
    if path is not None:
        return read_job(
            path,
            mode=mode,
            overrides=overrides,
            environ=app.settings.environ if environ is None else environ,
            providers=tuple(PROVIDERS),
            sites=read_user_settings(app.settings.config_file),
        )
    if mode is not None:
        raise BadRequestError(
            f"there is no job for the mode {mode!r}",
            why="neither this folder nor one above it has a kedge.yaml",
            fix="name a job with --job; `kedge jobs` lists them",
        )
    app.tell("No kedge.yaml here or above: this plans a plain machine, which runs nothing.")
    app.tell("  `kedge jobs` lists what --job takes; docs/job-file.md says how to write one.")
    return read_plain_machine(app, overrides)


def read_plain_machine(app: App, overrides: Overrides) -> Job:
    """Make the job of a machine that runs nothing by itself, in the user's own network if the settings name one.

    Raises:
        BadRequestError: a flag or the user's settings are invalid.
    """
    sites = read_user_settings(app.settings.config_file)
    return plain_machine_job(overrides, environ=app.settings.environ, providers=tuple(PROVIDERS), sites=sites)


def observe_and_plan(
    app: App, spec: LaunchSpec, *, follow: bool, new_time_limit: bool = False, avoided: Collection[Offer] = ()
) -> Plan:
    """Observe a run, and plan what is missing until it is completed.

    `core.planning.launch.plan_launch` makes the plan; what needs this computer is checked before it and noted after it.

    Args:
        app: the composition root.
        spec: the run.
        follow: the plan follows the command to its end.
        new_time_limit: this command sets a new time limit.
        avoided: offers that turned out to be unfit; only their place and type are compared.

    Raises:
        BadRequestError: the machines would be open to everybody, no range is set and this computer's address can't be
            determined, the store's keys aren't set, nothing would end a forgotten machine's bill, a link redirects its
            results, the job names kedge's own folder, or a new deadline is given for an existing machine, whose
            deadline is fixed.
        NoCapacityError: there is no offer, or only avoided ones.
        OverBudgetError: the worst case, with what the run has cost so far, exceeds its budget.
    """
    _refuse_everybody(spec)
    require_own_folder(Path(spec.results), app.settings.cwd)
    refuse_state(spec.job, app.settings.state_dir)
    read_secrets(spec.from_shell, app.settings.environ)
    world = app.world(spec.provider)
    world.require_store()
    observed = observe_run(world, spec, avoided=avoided)
    failed = find_failed_offer(world, spec.run_id, observed.machines) if observed.offers else None
    offers = _move_to_end(_leave_out(spec, observed.offers, avoided), failed)
    observed = replace(observed, offers=offers)
    if new_time_limit and not observed.offers and observed.machines:
        raise BadRequestError(
            f"run {spec.run_id} has a machine, whose deadline --ttl doesn't change",
            why=f"machine {observed.machines[0].id} is gone at {observed.machines[0].deadline_at:%H:%M} UTC",
            fix=f"move it with `kedge extend {spec.run_id} TIME`; resume without --ttl, which sets the next machine's",
        )
    after_start = AfterStart(follow=follow, destination=spec.results)
    with adding_line(spec.job):
        plan = plan_launch(spec, observed, after_start)
    plan = with_reaper(app, spec, with_ssh_access(spec, plan))
    notes = (*plan.notes, *exposure_notes(plan, app.settings.state_dir))
    return replace(plan, notes=notes, unsent=_unsent(spec.job, plan))


def _unsent(job: Job, plan: Plan) -> Unsent | None:
    """List the files of the code's folder that aren't sent, except those that reach the machine in another way."""
    if job.workdir is None or not any(isinstance(action, SendCode | StageCode) for action in plan.actions):
        return None
    sources = [path for mount in job.data for path in (mount.source, mount.written) if Path(path).is_absolute()]
    inside = [os.path.relpath(path, job.workdir) for path in sources if Path(path).is_relative_to(job.workdir)]
    places = [*(mount.target for mount in job.data), *(volume.target for volume in job.resources.volumes)]
    results = [folder for task in job.tasks for folder in task.result_folders]
    elsewhere = {path.rstrip("/") for path in (*inside, *places, *results)}
    return find_unsent(Path(job.workdir), elsewhere)


def _refuse_everybody(spec: LaunchSpec) -> None:
    """Refuse to open machines to everybody; that is allowed only for the user's own security group."""
    if not spec.resources.site.security_group:
        refuse_everybody(spec.ssh_from)


def _move_to_end(offers: tuple[Offer, ...], failed: Offer | None) -> tuple[Offer, ...]:
    """Move offers like the one that just failed to start to the end; they stay, for lack of others."""
    if failed is None:
        return offers
    return tuple(sorted(offers, key=lambda offer: offer.is_like(failed)))


def _leave_out(spec: LaunchSpec, offers: tuple[Offer, ...], avoided: Collection[Offer]) -> tuple[Offer, ...]:
    unfit = dict.fromkeys(f"{offer.place} {offer.instance_type}" for offer in avoided)
    fit = tuple(offer for offer in offers if not any(offer.is_like(each) for each in avoided))
    if offers and not fit:
        raise NoCapacityError(
            f"no other offer for {spec.run_id} is left",
            why=f"rented and found unfit: {', '.join(unfit)}",
            fix=f"try them again with `kedge resume {spec.run_id}`, or launch a new run with other types or regions",
        )
    return fit


def resumed_spec(record: RunRecord, changes: Changes, now: datetime) -> LaunchSpec:
    """Return a run's specification with the flags' changes; everything else stays the same."""
    job = record.spec.job
    ssh_from = changes.ssh_from or record.spec.ssh_from
    recover = record.spec.recover if changes.recover is None else changes.recover
    return replace(
        record.spec,
        keep=changes.keep or record.spec.keep,
        recover=recover,
        until=_until(record, changes, now) if recover else None,
        ssh_from=ssh_from,
        without_reaper=changes.without_reaper or record.spec.without_reaper,
        job=msgspec.structs.replace(
            job,
            time_limit=changes.time_limit or job.time_limit,
            budget_usd=job.budget_usd if changes.budget_usd is None else changes.budget_usd,
        ),
    )


def replaced_machine(app: App, record: RunRecord, plan: Plan) -> tuple[str, ...]:
    """Note what happened to the machine that a plan replaces; it may have ended since the run was settled.

    An earlier command, such as `status`, may have noticed that without reporting it.
    """
    if not any(isinstance(action, CreateMachine) for action in plan.actions):
        return ()
    found = app.reconcile(record)
    loss = find_last_loss(app.world(record.spec.provider), record.run_id)
    return tuple(dict.fromkeys((*found, *filter(None, (loss,)))))


def _until(record: RunRecord, changes: Changes, now: datetime) -> datetime:
    """Return the run's end: as recorded, unless a new time limit counts from now; the job's if none is recorded."""
    if changes.time_limit is None and record.spec.until is not None:
        return record.spec.until
    return now + (changes.time_limit or record.spec.job.time_limit)


def find_offers(app: App, overrides: Overrides) -> tuple[tuple[Offer, ...], str]:
    """List what a provider sells now, and the source of its prices."""
    provider, resources = _asked(app, overrides)
    return tuple(provider.offers(resources)), provider.offers_basis


def refresh_offers(app: App, overrides: Overrides) -> str:
    """Let a provider refresh its snapshot of prices, and return where it was written."""
    return _asked(app, overrides)[0].refresh_offers()


def _asked(app: App, overrides: Overrides) -> tuple[Provider, Resources]:
    job = read_plain_machine(app, overrides)
    provider = job.resources.provider or app.settings.provider
    return app.world(provider).provider, job.resources_at(provider, app.settings.ssh_from)


def _random_word() -> str:
    """Return four letters and digits, none of which can be mistaken for another."""
    return "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
