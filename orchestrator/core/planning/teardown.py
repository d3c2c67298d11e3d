"""Plans a teardown: the end of everything that a run has."""

from __future__ import annotations

from orchestrator.core.actions import Action, DestroyMachine, FetchResults, StopCommand
from orchestrator.core.machine import head_of
from orchestrator.core.plan import Observed, Plan
from orchestrator.core.planning.notes import silent_of_gang, teardown_notes
from orchestrator.core.planning.tasks import live_names


def plan_teardown(run_id: str, observed: Observed, *, destination: str | None) -> Plan:
    """Plan a teardown: stop the command, fetch the results, destroy the machines.

    Args:
        run_id: the run.
        observed: the run's state.
        destination: where results go; None to fetch none.
    """
    live = (each for each in observed.all_reports if observed.is_live(each))
    actions: list[Action] = [StopCommand(machine_id=each.machine, tasks=live_names(each)) for each in live]
    if destination is not None and observed.machines and (observed.all_reports or observed.keeps_results):
        source = observed.report.machine if observed.report is not None else head_of(observed.machines).id
        actions.append(FetchResults(machine_id=source, destination=destination, without=silent_of_gang(observed)))
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
