"""Plans the steps until the command runs: on a new machine, or on an existing one."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.actions import (
    Action,
    AwaitMachine,
    CreateMachine,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StageSecrets,
    StartCommand,
    StopCommand,
)
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import Job, LaunchSpec, StartFrom
from orchestrator.core.machine import Machine
from orchestrator.core.modes import mode_key
from orchestrator.core.plan import Observed
from orchestrator.core.planning.price import lifetime_of
from orchestrator.core.planning.tasks import names_of, pending_tasks, require_gpus, state_of
from orchestrator.core.protocol.report import RunState
from orchestrator.core.task import Task
from orchestrator.core.transfers import CodeSummary


def plan_new_machines(spec: LaunchSpec, observed: Observed, machine_ids: tuple[str, ...]) -> tuple[Action, ...]:
    """Plan a run's machines, and the steps on each until the command runs; the head's come first.

    Raises:
        NoCapacityError: there is no offer.
    """
    job = spec.job
    if not observed.offers:
        raise NoCapacityError(
            f"nothing fits {_describe_requirements(job)} at {spec.provider}",
            why="no offer has what the job's resources ask for",
            fix=f"see what there is with `kedge offers --provider {spec.provider}`",
        )
    starts = bool(job.tasks) and job.start is StartFrom.BOOT and observed.can_start_at_boot
    lifetime = lifetime_of(spec, observed.now)
    head, *others = machine_ids
    create = CreateMachine(
        machine_id=head,
        offers=observed.offers,
        lifetime=lifetime,
        starts=starts,
        others=tuple(others),
        awaits=spec.from_shell if starts and not observed.secret_place else (),
        until=observed.now + lifetime if observed.machines else None,
    )
    boot: tuple[Action, ...] = (create, *(AwaitMachine(machine_id=machine_id) for machine_id in machine_ids))
    if starts:
        code = _plan_staging(job, observed, head)
        return (*_plan_staged_data(job, head), code, *_plan_secrets(spec, observed, head), *boot)
    actions = list(boot)
    for machine_id in machine_ids:
        actions += (*plan_code(job, observed.code, machine_id), *plan_data(job, machine_id))
    for rank, machine_id in enumerate(machine_ids):
        if pending := pending_tasks(job, observed, None, rank):
            actions.append(plan_start(spec, observed, pending, machine_id, resumes=observed.has_results))
    return tuple(actions)


def plan_start(
    spec: LaunchSpec, observed: Observed, tasks: tuple[Task, ...], machine_id: str, *, resumes: bool
) -> StartCommand:
    """Plan a start of some of a job's tasks, in the run's present mode."""
    names = names_of(tasks)
    return StartCommand(
        machine_id=machine_id,
        supervisor=spec.job.supervisor.kind,
        resumes=resumes,
        tasks=names,
        done=tuple(name for name in observed.done if name not in names),
        mode=mode_key(spec, spec.sequence),
        continues=spec.continues,
    )


def plan_leaving(observed: Observed, machines: Iterable[Machine]) -> tuple[Action, ...]:
    """Plan to stop the mode that the run leaves for another one; nothing if it is over."""
    if observed.other_mode is None or not observed.other_mode.is_live:
        return ()
    return tuple(StopCommand(machine_id=machine.id, restarts=True, leaves_mode=True) for machine in machines)


def plan_on_machines(spec: LaunchSpec, observed: Observed, machines: tuple[Machine, ...]) -> tuple[Action, ...]:
    """Plan what machines still need until all tasks run on each; nothing where they run already, or have succeeded.

    Raises:
        JobKeyError: they don't fit on the machines.
    """
    job = spec.job
    actions: list[Action] = [*await_unready(observed, machines)]
    pending = {each: pending_tasks(job, observed, observed.report_of(each), each.rank) for each in machines}
    if any(pending.values()):
        require_gpus(job, machines)
        actions += plan_leaving(observed, machines)
    for machine, tasks in pending.items():
        report = observed.report_of(machine)
        if not tasks or any(state_of(task, report).is_live for task in job.tasks):
            # Code and data that another task is using stay as they are.
            continue
        if report is None or observed.code is None or report.code != observed.code.hash:
            actions += plan_code(job, observed.code, machine.id)
        actions += plan_data(job, machine.id)
    for machine, tasks in pending.items():
        began = any(state_of(task, observed.report_of(machine)) is not RunState.IDLE for task in tasks)
        if tasks:
            actions.append(plan_start(spec, observed, tasks, machine.id, resumes=observed.has_results or began))
    return tuple(actions)


def await_unready(observed: Observed, machines: Iterable[Machine]) -> tuple[AwaitMachine, ...]:
    """Plan to wait for the machines that haven't booted yet."""
    unready = (machine for machine in machines if observed.report_of(machine) is None or _is_booting(machine))
    return tuple(AwaitMachine(machine_id=machine.id) for machine in unready)


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
        done=observed.done,
    )


def _plan_secrets(spec: LaunchSpec, observed: Observed, machine_id: str) -> tuple[Action, ...]:
    """Store values from the laptop's shell, unless they are sent over SSH."""
    if not spec.from_shell or not observed.secret_place:
        return ()
    return (StageSecrets(machine_id=machine_id, names=spec.from_shell, place=observed.secret_place),)


def plan_data(job: Job, machine_id: str) -> tuple[Action, ...]:
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
