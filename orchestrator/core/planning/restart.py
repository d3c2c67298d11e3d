"""Plans a start of the command on a run's existing machine."""

from __future__ import annotations

from orchestrator.core.actions import Action, StartCommand, StopCommand
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.plan import Observed, Plan, usable_machine
from orchestrator.core.planning.notes import resume_notes
from orchestrator.core.planning.to_start import plan_code
from orchestrator.core.protocol.report import RunState


def plan_restart(run_id: str, job: Job, observed: Observed, *, send_code: bool) -> Plan:
    """Plan a start of the command on the existing machine; a running command is stopped first."""
    machine = usable_machine(observed.machines, observed.report)
    if machine is None:
        raise BadRequestError(
            f"run {run_id} has no machine",
            fix=f"give it one with `kedge resume {run_id}`, which also starts it",
        )
    actions: list[Action] = [*plan_code(job, observed.code, machine.id)] if send_code else []
    report = observed.report_of(machine)
    state = report.command.state if report else RunState.IDLE
    if state.is_live:
        actions.append(StopCommand(machine_id=machine.id, restarts=True))
    actions.append(
        StartCommand(machine_id=machine.id, supervisor=job.supervisor.kind, resumes=state is not RunState.IDLE)
    )
    return Plan(run_id=run_id, actions=tuple(actions), notes=resume_notes(job), revision=observed.revision)
