"""Translates a job into the agent's configuration for one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.modes import mode_key
from orchestrator.core.protocol.wire import DataSource, RunConfig, TaskConfig
from orchestrator.core.task import Task


def run_config(
    spec: LaunchSpec,
    gpus: int,
    environ: Mapping[str, str],
    unit: str,
    *,
    staged: Sequence[DataSource] = (),
    done: tuple[str, ...] = (),
) -> RunConfig:
    """Make the agent's configuration for a machine with that many GPUs.

    This is the only place that reads secrets and inherited variables from the laptop's environment.

    Args:
        spec: the run.
        gpus: how many the machine has.
        environ: holds the values of the secrets.
        unit: the text of a task's systemd unit; empty for other supervisors.
        staged: the laptop's data that the machine takes from the object store.
        done: the tasks that have succeeded on an earlier machine.

    Raises:
        BadRequestError: the environment lacks a variable.
    """
    then = [_mode_config(spec, job, gpus, environ, unit, staged) for job in spec.later]
    return replace(
        _mode_config(spec, spec.job, gpus, environ, unit, staged),
        sequence=spec.sequence,
        continues=mode_key(spec, spec.sequence - 1) if spec.continues else None,
        then=tuple(replace(config, sequence=spec.sequence + number) for number, config in enumerate(then, 1)),
        done=done,
    )


def without_secrets(config: RunConfig) -> RunConfig:
    """Return a configuration without the values of secrets; the names of each mode stay if there are several."""
    if not config.then:
        return replace(config, secrets={})
    first, *then = (replace(each, secrets=dict.fromkeys(each.secrets, "")) for each in (config, *config.then))
    return replace(first, then=tuple(then))


def _mode_config(
    spec: LaunchSpec, job: Job, gpus: int, environ: Mapping[str, str], unit: str, staged: Sequence[DataSource]
) -> RunConfig:
    return RunConfig(
        run=spec.run_id,
        job=job.name,
        mode=job.mode,
        setup=job.setup,
        tasks=tuple(_task_config(task, job, unit) for task in job.tasks),
        on_failure=job.on_failure,
        envs=dict(job.envs),
        secrets=read_secrets(job.from_shell, environ),
        data=_places(job),
        gpus_per_node=gpus,
        python_path=(".",) if job.bundled_trainer else (),
        keep=spec.keep,
        sources=(*_fetched(job), *staged),
        python=spec.python.path if spec.python else "",
        left_behind=job.left_behind_bytes,
        setup_inputs=job.setup_inputs,
        recovers=spec.recover,
    )


def _task_config(task: Task, job: Job, unit: str) -> TaskConfig:
    return TaskConfig(
        name=task.name,
        command=task.run,
        supervisor=job.supervisor.kind,
        restarts=task.supervisor.restarts,
        restart_after=task.supervisor.restart_after.total_seconds(),
        grace=task.supervisor.grace.total_seconds(),
        resume=task.later_run,
        unit=unit,
        envs=dict(task.envs),
        outputs=task.outputs,
        checkpoints=task.checkpoints,
        gpus=task.gpus,
        cpus=task.cpus,
        after=task.after,
        nodes=task.nodes,
    )


def _places(job: Job) -> tuple[str, ...]:
    """List the targets of data and volumes, without data that lies on a volume."""
    mounts = [mount.target for mount in job.data if not job.is_on_volume(mount)]
    return (*mounts, *(volume.target for volume in job.resources.volumes))


def _fetched(job: Job) -> tuple[DataSource, ...]:
    return tuple(DataSource(source=mount.source, target=mount.target) for mount in job.data if mount.is_fetched)


def read_secrets(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """Read the named values from the laptop's environment.

    Raises:
        BadRequestError: one of them isn't there.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise BadRequestError(
            f"the variable {missing[0]} is not set",
            why="the job takes it, and its value comes from this shell's environment",
            fix=f"run `export {missing[0]}=...` first",
        )
    return {name: environ[name] for name in names}
