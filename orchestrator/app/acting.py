"""Use cases that act on an existing run: each returns a plan, which `App.apply` executes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec

from orchestrator.adapters.providers import PROVIDERS
from orchestrator.app.results import require_no_others, require_own_folder
from orchestrator.app.root import App
from orchestrator.core.actions import FetchResults, SendData, StopCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Plan
from orchestrator.core.planning.restart import plan_restart
from orchestrator.core.planning.teardown import plan_teardown
from orchestrator.core.values.units import format_usd
from orchestrator.engine.observing.observe import observe_run
from orchestrator.engine.steps.run_config import read_secrets


def start_plan(app: App, record: RunRecord) -> Plan:
    """Plan a start of the command on the existing machine; nothing if it runs already.

    Raises:
        BadRequestError: the run has no machine, or this shell lacks a variable that the job needs.
    """
    _record_unrecorded(app, record)
    observed = observe_run(app.world(record.spec.provider), record.spec, code=False, offers=False)
    if observed.report is not None and observed.report.command.state.is_live:
        return Plan(run_id=record.run_id, actions=(), notes=("the command is at work already",))
    read_secrets(record.spec.job.from_shell, app.settings.environ)
    return plan_restart(record.run_id, record.spec.job, observed, send_code=False)


def restart_plan(app: App, record: RunRecord) -> Plan:
    """Plan to send the code and to restart the command with it.

    Raises:
        BadRequestError: the run has no machine, or this shell lacks a variable that the job needs.
    """
    read_secrets(record.spec.job.from_shell, app.settings.environ)
    _record_unrecorded(app, record)
    observed = observe_run(app.world(record.spec.provider), record.spec, offers=False)
    return plan_restart(record.run_id, record.spec.job, observed, send_code=True)


def stop_plan(app: App, record: RunRecord, *, now: bool = False) -> Plan:
    """Plan to stop the command, or to kill it now."""
    machine = app.machine(record)
    notes = (*stop_notes(machine), *app.world(machine.provider).provider.caveats)
    return Plan(run_id=record.run_id, actions=(StopCommand(machine_id=machine.id, now=now),), notes=notes)


def stop_notes(machine: Machine) -> tuple[str, ...]:
    """Note that the machine of a stopped command still bills, and whether powering it off would change that."""
    if not machine.usd_per_hour:
        return ()
    entry = PROVIDERS.get(machine.provider)
    off = (
        f"; powering it off would save nothing: {machine.provider} bills a machine until it is deleted"
        if entry is not None and entry.bills_when_off
        else ""
    )
    price = format_usd(machine.usd_per_hour)
    return (f"the machine stays, and bills {price} an hour until `kedge teardown` or its deadline ends it{off}",)


def sync_data_plan(app: App, record: RunRecord, *, delete: bool) -> Plan:
    """Plan to send the job's data to the machine."""
    machine_id = app.machine(record).id
    mounts = [mount for mount in record.spec.job.data if not mount.is_fetched]
    actions = tuple(SendData(machine_id=machine_id, mount=mount, delete=delete) for mount in mounts)
    return Plan(run_id=record.run_id, actions=actions, notes=() if actions else ("the job sends no data",))


def fetch_plan(app: App, record: RunRecord, to: str | None) -> Plan:
    """Plan to copy the results to the laptop."""
    _record_unrecorded(app, record)
    machines = app.ledger.machines(record.run_id)
    if not machines:
        raise BadRequestError(f"run {record.run_id} never had a machine, so there is nothing to fetch")
    # Not resolved, because a link in it must be refused.
    folder = Path(os.path.abspath(app.settings.cwd / (to or record.spec.results)))  # noqa: PTH100
    require_own_folder(folder, app.settings.cwd)
    require_no_others(folder, {record.spec.results, *_fetched_to(app, record.run_id)})
    return Plan(
        run_id=record.run_id,
        actions=(FetchResults(machine_id=machines[-1].id, destination=str(folder)),),
    )


def _fetched_to(app: App, run_id: str) -> set[str]:
    """List where a run's results were copied to, by the ledger: a marker in a folder could come from a repository."""
    fetches = (each for each in app.ledger.intents(run_id) if each.kind == FetchResults.__name__)
    return {msgspec.json.decode(each.payload, type=FetchResults).destination for each in fetches}


def teardown_plan(app: App, record: RunRecord, *, fetch: bool) -> Plan:
    """Plan the end of everything that the run has."""
    destination, notes = _results_destination(app, record) if fetch and record.spec.job.run else (None, ())
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
