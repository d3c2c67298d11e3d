"""Turns a job into what the agent needs to run it on one machine."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.wire import RunConfig


def run_config(spec: LaunchSpec, machine: Machine, environ: Mapping[str, str], unit: str) -> RunConfig:
    """Make the agent's configuration; secrets are read from the laptop's environment here and nowhere else.

    Raises:
        BadRequestError: a secret that the environment doesn't hold.
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
        secrets=read_secrets(job.secrets, environ),
        outputs=job.outputs,
        checkpoints=job.checkpoints,
        data=tuple(mount.target for mount in job.data),
        gpus_per_node=machine.gpus,
        unit=unit,
        python_path=(".",) if job.bundled_trainer else (),
        keep=spec.keep,
    )


def read_secrets(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """Take the named values from the laptop's environment.

    Raises:
        BadRequestError: one of them isn't there.
    """
    missing = [name for name in names if name not in environ]
    if missing:
        raise BadRequestError(
            f"the secret {missing[0]} is not set",
            why="the job names it, and its value is taken from this shell's environment",
            fix=f"run `export {missing[0]}=...` first",
        )
    return {name: environ[name] for name in names}
