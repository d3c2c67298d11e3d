"""Plans the steps until the command runs: on a new machine, or on an existing one."""

from __future__ import annotations

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StartCommand,
)
from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.job import Job, LaunchSpec, StartFrom
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Observed
from orchestrator.core.planning.price import lifetime_of
from orchestrator.core.protocol.report import RunState
from orchestrator.core.transfers import CodeSummary


def plan_new_machine(spec: LaunchSpec, observed: Observed, machine_id: str) -> tuple[Action, ...]:
    """Plan a machine, and the steps on it until the command runs.

    Raises:
        NoCapacityError: there is no offer.
        BadRequestError: the job can't start at boot, although it asks for that.
    """
    job = spec.job
    if not observed.offers:
        raise NoCapacityError(
            f"nothing fits {_describe_requirements(job)} at {spec.provider}",
            why="no offer has what the job's resources ask for",
            fix=f"see what there is with `kedge offers --provider {spec.provider}`",
        )
    starts = bool(job.run) and job.start is StartFrom.BOOT and observed.can_start_at_boot
    lifetime = lifetime_of(spec, observed.now)
    create = CreateMachine(machine_id=machine_id, offers=observed.offers, lifetime=lifetime, starts=starts)
    boot: tuple[Action, ...] = (create, AwaitMachine(machine_id=machine_id))
    if starts:
        _refuse_unbootable(job)
        return (*_plan_staged_data(job, machine_id), _plan_staging(job, observed, machine_id), *boot)
    actions = [
        *boot,
        *plan_code(job, observed.code, machine_id),
        *_plan_data(job, machine_id),
    ]
    if job.run:
        kind = job.supervisor.kind
        actions.append(StartCommand(machine_id=machine_id, supervisor=kind, resumes=observed.has_results))
    return tuple(actions)


def plan_on_machine(job: Job, observed: Observed, machine: Machine) -> tuple[Action, ...]:
    """Plan what a machine still needs until the command runs; nothing if it runs already, or has succeeded."""
    report = observed.report_of(machine)
    actions: list[Action] = []
    if report is None or _is_booting(machine):
        actions.append(AwaitMachine(machine_id=machine.id))
    state = report.command.state if report else RunState.IDLE
    if not job.run or state.is_live or state is RunState.SUCCEEDED:
        return tuple(actions)
    if report is None or observed.code is None or report.code != observed.code.hash:
        actions.extend(plan_code(job, observed.code, machine.id))
    actions.extend(_plan_data(job, machine.id))
    resumes = observed.has_results or state is not RunState.IDLE
    actions.append(StartCommand(machine_id=machine.id, supervisor=job.supervisor.kind, resumes=resumes))
    return tuple(actions)


def _is_booting(machine: Machine) -> bool:
    """Tell whether it still has its first host key, which the end of its boot replaces; its agent may answer before."""
    return machine.address is not None and machine.address.provisional


def plan_code(job: Job, code: CodeSummary | None, machine_id: str) -> tuple[Action, ...]:
    """Plan to bring the machine's code to the state on the laptop; nothing for a job without code."""
    if code is None:
        return ()
    return (SendCode(machine_id=machine_id, source=_describe_code(job), files=code.files, bytes=code.bytes),)


def _plan_staged_data(job: Job, machine_id: str) -> tuple[Action, ...]:
    """Stage data before the code, because the configuration that is staged with the code names the data."""
    return tuple(StageData(machine_id=machine_id, mount=mount) for mount in job.data if not mount.is_fetched)


def _plan_staging(job: Job, observed: Observed, machine_id: str) -> StageCode:
    accelerators = observed.offers[0].accelerators
    return StageCode(
        machine_id=machine_id,
        source=_describe_code(job),
        files=observed.code.files if observed.code else 0,
        bytes=observed.code.bytes if observed.code else 0,
        gpus=accelerators.count if accelerators else 0,
    )


def _refuse_unbootable(job: Job) -> None:
    """Refuse values from the laptop's shell: a machine that starts by itself starts without them."""
    if job.from_shell:
        kind = "secret" if job.secrets else "inherited variable"
        raise BadRequestError(
            f"{job.name} can't start at boot: it needs the {kind} {job.from_shell[0]}",
            why="this computer sends it over SSH, and never writes it into the user-data or the bucket",
            fix="write `start: ssh`, or leave `start` out",
        )


def _plan_data(job: Job, machine_id: str) -> tuple[Action, ...]:
    """Plan to send the data that the machine doesn't fetch by itself."""
    return tuple(SendData(machine_id=machine_id, mount=mount) for mount in job.data if not mount.is_fetched)


def _describe_code(job: Job) -> str:
    parts = (job.workdir or "", "the bundled trainer" if job.bundled_trainer else "")
    return " + ".join(part for part in parts if part) or "no code"


def _describe_requirements(job: Job) -> str:
    resources = job.resources
    named = (
        ("GPU", resources.accelerators),
        ("type", resources.instance_type),
        ("region", ", ".join(resources.regions) or None),
        ("zone", resources.zone),
    )
    said = [f"{name} {value}" for name, value in named if value is not None]
    return ", ".join(said) or "the job"
