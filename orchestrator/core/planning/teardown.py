"""Plans a teardown: the end of everything that a run has."""

from __future__ import annotations

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, StopCommand
from orchestrator.core.plan import Observed, Plan
from orchestrator.core.planning.notes import teardown_notes


def plan_teardown(run_id: str, observed: Observed, *, destination: str | None) -> Plan:
    """Plan a teardown: stop the command, fetch the results, destroy the machines.

    Args:
        run_id: the run.
        observed: the run's state.
        destination: where results go; None to fetch none.
    """
    actions: list[Action] = []
    report = observed.report
    if report is not None and report.command.state.is_live:
        actions.append(StopCommand(machine_id=report.machine))
    if destination is not None and observed.machines and (report is not None or observed.keeps_results):
        source = report.machine if report is not None else observed.machines[-1].id
        actions.append(FetchResults(machine_id=source, destination=destination))
    leaves = destination is None
    actions.extend(DestroyMachine(machine_id=machine.id, leaves_results=leaves) for machine in observed.machines)
    return Plan(
        run_id=run_id,
        actions=tuple(actions),
        worst_usd=observed.spent_usd,
        notes=teardown_notes(observed),
        revision=observed.revision,
        ends=True,
    )
