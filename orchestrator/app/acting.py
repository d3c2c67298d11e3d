"""Use cases that act on a run that is there: each makes a plan, which `App.apply` carries out."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app.root import App
from orchestrator.core.actions import FetchResults, SendData, StopCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.plan import Plan, plan_restart, plan_teardown
from orchestrator.core.report import Command
from orchestrator.engine import agent_client
from orchestrator.engine.observe import observe_run


def start_plan(app: App, record: RunRecord) -> Plan:
    """Plan a start of the command on the machine that is there; nothing where it is at work.

    Raises:
        BadRequestError: the run has no machine.
    """
    observed = observe_run(app.world(record.spec.provider), record.spec, code=False, offers=False)
    if observed.report is not None and observed.report.command.state.is_live:
        return Plan(run_id=record.run_id, actions=(), notes=("the command is at work already",))
    return plan_restart(record.run_id, record.spec.job, observed, send_code=False)


def restart_plan(app: App, record: RunRecord) -> Plan:
    """Plan to send the code and to start the command again on it.

    Raises:
        BadRequestError: the run has no machine.
    """
    observed = observe_run(app.world(record.spec.provider), record.spec, offers=False)
    return plan_restart(record.run_id, record.spec.job, observed, send_code=True)


def stop_plan(app: App, record: RunRecord) -> Plan:
    """Plan to stop the command."""
    return Plan(run_id=record.run_id, actions=(StopCommand(machine_id=app.machine(record).id),))


def sync_data_plan(app: App, record: RunRecord, *, delete: bool) -> Plan:
    """Plan to bring the job's data to the machine."""
    machine_id = app.machine(record).id
    mounts = [mount for mount in record.spec.job.data if not mount.is_fetched]
    actions = tuple(SendData(machine_id=machine_id, mount=mount, delete=delete) for mount in mounts)
    return Plan(run_id=record.run_id, actions=actions, notes=() if actions else ("the job names no data of yours",))


def fetch_plan(app: App, record: RunRecord, to: str | None) -> Plan:
    """Plan to copy the results home."""
    machines = app.ledger.machines(record.run_id)
    if not machines:
        raise BadRequestError(f"run {record.run_id} never had a machine, so there is nothing to fetch")
    folder = (app.settings.cwd / to) if to else Path(record.spec.results)
    return Plan(
        run_id=record.run_id,
        actions=(FetchResults(machine_id=machines[-1].id, destination=str(folder)),),
    )


def teardown_plan(app: App, record: RunRecord, *, fetch: bool) -> Plan:
    """Plan the end of everything that a run has."""
    observed = observe_run(app.world(record.spec.provider), record.spec, code=False, offers=False)
    destination = record.spec.results if fetch and record.spec.job.run else None
    return plan_teardown(record.run_id, observed, destination=destination)


def kill(app: App, record: RunRecord) -> Command:
    """End the command at once."""
    machine = app.machine(record)
    return agent_client.kill(app.remote(machine), machine)
