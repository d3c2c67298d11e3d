"""Use cases that act on an existing run: each returns a plan, which `App.apply` executes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.providers import PROVIDERS
from orchestrator.app.results import require_no_others, require_own_folder
from orchestrator.app.root import App
from orchestrator.core.actions import FetchResults, SendData, StopCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, head_of
from orchestrator.core.modes import find_mode, result_folders
from orchestrator.core.plan import Plan
from orchestrator.core.planning.restart import plan_restart, plan_start_again
from orchestrator.core.planning.tasks import names_of, tasks_on
from orchestrator.core.planning.teardown import plan_teardown
from orchestrator.core.task import choose_tasks
from orchestrator.core.values.structs import decode_json
from orchestrator.core.values.units import format_usd
from orchestrator.engine.observing.observe import observe_run
from orchestrator.engine.steps.measuring import measure_fetch
from orchestrator.engine.steps.run_config import read_secrets
from orchestrator.engine.steps.wanted import wanted_by


def start_plan(app: App, record: RunRecord, tasks: Sequence[str] = ()) -> Plan:
    """Plan a start, on the existing machine, of the named tasks, or of all that neither run nor have succeeded.

    Raises:
        BadRequestError: the run has no machine or no such task, or this shell lacks a variable that the job needs.
    """
    choose_tasks(record.run_id, record.spec.job.tasks, tasks)
    _record_unrecorded(app, record)
    observed = observe_run(app.world(record.spec.provider), record.spec, code=False, offers=False)
    plan = plan_start_again(record.spec, observed, tasks)
    if plan.actions:
        read_secrets(record.spec.from_shell, app.settings.environ)
    return plan


def restart_plan(app: App, record: RunRecord) -> Plan:
    """Plan to send the code and to restart the command with it.

    Raises:
        BadRequestError: the run has no machine, or this shell lacks a variable that the job needs.
    """
    read_secrets(record.spec.from_shell, app.settings.environ)
    _record_unrecorded(app, record)
    observed = observe_run(app.world(record.spec.provider), record.spec, offers=False)
    return plan_restart(record.spec, observed)


def stop_plan(app: App, record: RunRecord, tasks: Sequence[str] = (), *, now: bool = False) -> Plan:
    """Plan to stop the named tasks, or all, or to kill them now.

    Raises:
        BadRequestError: the run has no such task.
    """
    job = record.spec.job
    chosen = choose_tasks(record.run_id, job.tasks, tasks)
    machines = app.machines(record)
    there = {each.id: names_of(tuple(task for task in tasks_on(job, each.rank) if task in chosen)) for each in machines}
    notes = (*stop_notes(*machines), *app.world(machines[0].provider).provider.caveats)
    actions = tuple(
        StopCommand(machine_id=machine, now=now, tasks=names) for machine, names in there.items() if names or not tasks
    )
    return Plan(run_id=record.run_id, actions=actions, notes=notes)


def stop_notes(machine: Machine, *others: Machine) -> tuple[str, ...]:
    """Note that the machines of a stopped command still bill, and whether powering them off would change that."""
    usd_per_hour = sum((each.usd_per_hour for each in others), machine.usd_per_hour)
    if not usd_per_hour:
        return ()
    entry = PROVIDERS.get(machine.provider)
    off = (
        f"; powering it off would save nothing: {machine.provider} bills a machine until it is deleted"
        if entry is not None and entry.bills_when_off
        else ""
    )
    price = format_usd(usd_per_hour)
    which = f"the {len(others) + 1} machines stay, and bill" if others else "the machine stays, and bills"
    ends = "them" if others else "it"
    return (
        f"{which} {price} an hour until `kedge teardown` or {'their' if others else 'its'} deadline ends {ends}{off}",
    )


def sync_data_plan(app: App, record: RunRecord, *, delete: bool) -> Plan:
    """Plan to send the job's data to the machine."""
    machines = app.machines(record)
    mounts = [mount for mount in record.spec.job.data if not mount.is_fetched]
    actions = tuple(
        SendData(machine_id=machine.id, mount=mount, delete=delete) for machine in machines for mount in mounts
    )
    return Plan(run_id=record.run_id, actions=actions, notes=() if actions else ("the job sends no data",))


def fetch_plan(
    app: App,
    record: RunRecord,
    to: str | None,
    tasks: Sequence[str] = (),
    *,
    mode: str | None = None,
    only: tuple[str, ...] = (),
    measure: bool = False,
) -> Plan:
    """Plan to copy the results of the named tasks, or all, to the laptop: of one mode, or of all that the run has had.

    Args:
        app: the composition root.
        record: the run.
        to: the folder; None for the run's own.
        tasks: only of these.
        mode: only of this one.
        only: names and patterns of results; empty for all that the job's outputs want.
        measure: ask the machine, or the object store, how much that is.

    Raises:
        BadRequestError: the run has no such task, mode or result, or never had a machine; or the folder holds other
            files.
    """
    sequence = None if mode is None else find_mode(record.spec, mode)
    if sequence is None or sequence == record.spec.sequence:
        choose_tasks(record.run_id, record.spec.job.tasks, tasks)
    folders = () if sequence is None else result_folders(record.spec, sequence, tasks)
    _record_unrecorded(app, record)
    machines = app.ledger.machines(record.run_id)
    if not machines:
        raise BadRequestError(f"run {record.run_id} never had a machine, so there is nothing to fetch")
    # Not resolved, because a link in it must be refused.
    folder = Path(os.path.abspath(app.settings.cwd / (to or record.spec.results)))  # noqa: PTH100
    require_own_folder(folder, app.settings.cwd)
    require_no_others(folder, {record.spec.results, *_fetched_to(app, record.run_id)})
    action = FetchResults(
        machine_id=head_of(machines).id,
        destination=str(folder),
        tasks=tuple(dict.fromkeys(tasks)),
        folders=folders,
        only=only,
    )
    notes = (_measure(app, record, action),) if measure else ()
    return Plan(run_id=record.run_id, actions=(action,), notes=notes)


def _measure(app: App, record: RunRecord, action: FetchResults) -> str:
    wanted = wanted_by(record.spec, action, progress=lambda _done, _total: None, tell=lambda _text: None)
    return measure_fetch(app.world(record.spec.provider), record.run_id, wanted)


def _fetched_to(app: App, run_id: str) -> set[str]:
    """List where a run's results were copied to, by the ledger: a marker in a folder could come from a repository."""
    fetches = (each for each in app.ledger.intents(run_id) if each.kind == FetchResults.__name__)
    return {decode_json(each.payload, FetchResults).destination for each in fetches}


def teardown_plan(app: App, record: RunRecord, *, fetch: bool) -> Plan:
    """Plan the end of everything that the run has."""
    destination, notes = _results_destination(app, record) if fetch and record.spec.job.tasks else (None, ())
    observed = observe_run(app.world(record.spec.provider), record.spec, code=False, offers=False)
    plan = plan_teardown(record.run_id, observed, destination=destination)
    fetches = any(isinstance(action, FetchResults) for action in plan.actions)
    return replace(plan, notes=(*notes, *plan.notes)) if fetches else plan


def _results_destination(app: App, record: RunRecord) -> tuple[str, tuple[str, ...]]:
    """Return where results go before their machine ends, and notes about it.

    A link in a repository must neither keep a machine billing nor lose results: they go to kedge's own folder instead.
    """
    try:
        require_own_folder(Path(record.spec.results), app.settings.cwd)
    except BadRequestError as err:
        folder = app.settings.state_dir / "results" / record.run_id
        return str(folder), (f"{err.what}, so results come to {folder}: move them from there",)
    return record.spec.results, ()


def _record_unrecorded(app: App, record: RunRecord) -> None:
    """Add a machine to the ledger whose launch was killed before it could record it."""
    if record.stage is RunStage.LIVE and not app.ledger.machines(record.run_id, live_only=True):
        app.reconcile(record)


def ended_spec(record: RunRecord) -> LaunchSpec:
    """Return the specification of a run that is being ended: from then on, no machine is replaced."""
    return replace(record.spec, recover=False, until=None)
