"""Translates a job into the agent's configuration for one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.protocol.wire import DataSource, RunConfig


def run_config(
    spec: LaunchSpec, gpus: int, environ: Mapping[str, str], unit: str, *, staged: Sequence[DataSource] = ()
) -> RunConfig:
    """Make the agent's configuration for a machine with that many GPUs.

    This is the only place that reads secrets and inherited variables from the laptop's environment.

    Args:
        spec: the run.
        gpus: how many the machine has.
        environ: holds the values of the secrets.
        unit: the text of the systemd unit; empty for other supervisors.
        staged: the laptop's data that the machine takes from the object store.

    Raises:
        BadRequestError: the environment lacks a variable.
    """
    job = spec.job
    return RunConfig(
        run=spec.run_id,
        job=job.name,
        mode=job.mode,
        command=job.run,
        setup=job.setup,
        supervisor=job.supervisor.kind,
        restarts=job.supervisor.restarts,
        restart_after=job.supervisor.restart_after.total_seconds(),
        grace=job.supervisor.grace.total_seconds(),
        envs=dict(job.envs),
        secrets=read_secrets(job.from_shell, environ),
        outputs=job.outputs,
        checkpoints=job.checkpoints,
        data=_places(job),
        gpus_per_node=gpus,
        unit=unit,
        python_path=(".",) if job.bundled_trainer else (),
        keep=spec.keep,
        sources=(*_fetched(job), *staged),
        python=spec.python.path if spec.python else "",
        left_behind=job.left_behind_bytes,
        resume=job.later_run,
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
