"""Renders a job for AWS Batch: requests for its API, the container's command, and `submit.sh`.

The requests have placeholders (`@IMAGE@`) for what only the account's owner knows; `submit.sh` fills them in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from orchestrator.adapters.export.contract import render_contract
from orchestrator.adapters.export.model import SCRIPT, ExportFile, nodes_of, own_master, prefix_of
from orchestrator.adapters.export.slurm import in_order, require_time
from orchestrator.adapters.host.templates import render
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.task import Task

MOUNT = "/mnt/kedge"
FOLDER = "/opt/kedge/job"
STOPS_BEFORE_S = 30
"""Batch gives a container that is past its time 30 seconds itself. fact: batch-timeouts"""
_SHORTEST_S = 60
_ATTEMPTS = 10
_VOLUME = "kedge"
# fact: batch-memory
_FOR_THE_SYSTEM = 0.05
_FOR_ECS_MIB = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a container gets of a machine."""

    cpus: int
    memory_mib: int
    gpus: int


def render_batch(job: Job, kind: InstanceType) -> Iterator[ExportFile]:
    """Yield the files.

    Raises:
        BadRequestError: Batch can't run the job, or the machine is too small for a task.
    """
    _require_possible(job, kind)
    require_time(job, job.grace + timedelta(seconds=STOPS_BEFORE_S))
    yield from render_contract(job, kind.gpus, stops_before_seconds=STOPS_BEFORE_S)
    shares = shares_of(job, kind)
    for task in job.tasks:
        script = render("export/batch.sh.j2", **_values(job, task))
        yield ExportFile(path=f"{prefix_of(task)}batch.sh", content=script.encode(), mode=SCRIPT)
        yield _document(f"{prefix_of(task)}job-definition.json", job_definition(job, task, kind, shares[task.name]))
    yield _document("compute-environment.json", compute_environment(job, kind))
    yield _document("job-queue.json", job_queue(job, kind))
    yield ExportFile(path="Dockerfile", content=_DOCKERFILE.encode())
    yield ExportFile(path=".dockerignore", content=b"secrets.env\ndata\nruns\n")
    values = render("export/batch-values.sh.j2", secrets=list(job.from_shell), several=has_several_nodes(job))
    yield ExportFile(path="values.sh", content=values.encode(), is_form=True)
    yield ExportFile(path="submit.sh", content=_submit(job, kind).encode(), mode=SCRIPT)


def shares_of(job: Job, kind: InstanceType) -> dict[str, Share]:
    """Return each task's part of a machine, by the task's name.

    Raises:
        BadRequestError: the machine is too small for a task.
    """
    return {task.name: share_of(kind, task, several=len(job.tasks) > 1) for task in job.tasks}


def has_several_nodes(job: Job) -> bool:
    """Tell whether the job has a multi-node parallel job."""
    return any(nodes_of(job, task) > 1 for task in job.tasks)


def share_of(kind: InstanceType, task: Task, *, several: bool) -> Share:
    """Return a task's part of a machine: all that ECS leaves of it, or the part of its GPUs.

    Raises:
        BadRequestError: the machine has fewer cores or GPUs than the task asks for.
    """
    last = max(task.gpus) + 1 if task.gpus else 0
    if last > kind.gpus or (task.cpus or 0) > kind.cpus:
        raise BadRequestError(
            f"{kind.name} is too small for the task {task.name or 'of the job'}",
            why=f"it has {kind.cpus} vCPUs and {kind.gpus} GPUs; the task asks for {task.cpus or 'all'} cores and GPU "
            f"{last - 1}"
            if task.gpus
            else f"it has {kind.cpus} vCPUs; the task asks for {task.cpus}",
            fix="name a larger machine with --gpu or --instance-type",
        )
    memory_mib = math.floor(kind.memory_gib * 1024 * (1 - _FOR_THE_SYSTEM)) - _FOR_ECS_MIB
    part = len(task.gpus) / kind.gpus if task.gpus and several else 1.0
    return Share(
        cpus=task.cpus or max(1, math.floor(kind.cpus * part)),
        memory_mib=math.floor(memory_mib * part),
        gpus=kind.gpus if task.gpus is None else len(task.gpus),
    )


def machines_for(job: Job, kind: InstanceType) -> int:
    """Return how many machines the job's tasks need at the same time."""
    shares = shares_of(job, kind)
    at_once = sum(shares[task.name].cpus for task in job.tasks if not task.after)
    return max(job.num_nodes, math.ceil(at_once / kind.cpus))


def job_definition(job: Job, task: Task, kind: InstanceType, share: Share) -> dict[str, Any]:
    """Make a RegisterJobDefinition request."""
    nodes = nodes_of(job, task)
    container = _container(job, task, share)
    what: dict[str, Any] = {"type": "container", "containerProperties": container}
    if nodes > 1:
        group = {"targetNodes": "0:", "container": container | {"instanceType": kind.name}}
        what = {
            "type": "multinode",
            "nodeProperties": {"numNodes": nodes, "mainNode": 0, "nodeRangeProperties": [group]},
        }
    return {
        "jobDefinitionName": name_of(job, task),
        **what,
        # fact: batch-retries
        "retryStrategy": {
            "attempts": _ATTEMPTS,
            "evaluateOnExit": [
                {"onStatusReason": "Host EC2*", "action": "RETRY"},
                {"onReason": "*", "action": "EXIT"},
            ],
        },
        "timeout": {"attemptDurationSeconds": max(_SHORTEST_S, round(job.time_limit.total_seconds()))},
        "propagateTags": True,
        "tags": {"kedge-job": job.name},
    }


def compute_environment(job: Job, kind: InstanceType) -> dict[str, Any]:
    """Make a CreateComputeEnvironment request: one type of machine, and none while nothing is queued."""
    spot = job.resources.use_spot
    return {
        "computeEnvironmentName": environment_name(job, kind),
        "type": "MANAGED",
        "state": "ENABLED",
        "computeResources": {
            "type": "SPOT" if spot else "EC2",
            "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED" if spot else "BEST_FIT_PROGRESSIVE",
            "minvCpus": 0,
            "desiredvCpus": 0,
            "maxvCpus": kind.cpus * machines_for(job, kind),
            "instanceTypes": [kind.name],
            "ec2Configuration": [{"imageType": "ECS_AL2023_NVIDIA" if kind.gpus else "ECS_AL2023"}],
            "subnets": ["@SUBNETS@"],
            "securityGroupIds": ["@SECURITY_GROUPS@"],
            "instanceRole": "@INSTANCE_ROLE@",
            "tags": {"kedge-job": job.name},
        },
    }


def job_queue(job: Job, kind: InstanceType) -> dict[str, Any]:
    """Make a CreateJobQueue request."""
    return {
        "jobQueueName": environment_name(job, kind),
        "state": "ENABLED",
        "priority": 1,
        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": environment_name(job, kind)}],
    }


def secret_parameter(job: Job, name: str) -> str:
    """Return the name of the parameter of Systems Manager that has a secret's value."""
    return f"/kedge/export/{job.name}/{name}"


def environment_name(job: Job, kind: InstanceType) -> str:
    """Return the name of the compute environment and of the queue, which says what machines it has.

    An environment that exists is reused, and in one with other machines the job would never start.
    """
    machines = machines_for(job, kind)
    # Batch takes no dots.
    words = ("kedge", job.name, job.mode, kind.name.replace(".", "-"), "spot" if job.resources.use_spot else "")
    return "-".join(filter(None, (*words, f"x{machines}" if machines > 1 else "")))


def name_of(job: Job, task: Task) -> str:
    """Return the name of a task's job definition."""
    return "-".join(filter(None, ("kedge", job.name, job.mode, task.name)))


def _container(job: Job, task: Task, share: Share) -> dict[str, Any]:
    asked = {"VCPU": share.cpus, "MEMORY": share.memory_mib, **({"GPU": share.gpus} if share.gpus else {})}
    secrets = [{"name": name, "valueFrom": secret_parameter(job, name)} for name in job.from_shell]
    return {
        "image": "@IMAGE@",
        "command": ["bash", f"{FOLDER}/{prefix_of(task)}batch.sh"],
        "resourceRequirements": [{"type": kind, "value": str(count)} for kind, count in asked.items()],
        # For the workers of data loaders; Docker's own is 64 MiB.
        "linuxParameters": {"sharedMemorySize": share.memory_mib // 2},
        "volumes": [
            {
                "name": _VOLUME,
                "efsVolumeConfiguration": {"fileSystemId": "@FILE_SYSTEM@", "transitEncryption": "ENABLED"},
            }
        ],
        "mountPoints": [{"sourceVolume": _VOLUME, "containerPath": MOUNT, "readOnly": False}],
        **({"secrets": secrets, "executionRoleArn": "@EXECUTION_ROLE@"} if secrets else {}),
    }


def _require_possible(job: Job, kind: InstanceType) -> None:
    if job.num_nodes > 1 and job.resources.use_spot:
        raise BadRequestError(
            "AWS Batch runs no job of several machines at the spot price",
            why="its multi-node parallel jobs aren't supported on spot machines",
            fix="leave `use_spot` out, or set num_nodes to 1",
        )
    if kind.name.startswith(("p3.", "p3dn.", "g3.")):
        raise BadRequestError(
            f"AWS Batch has no image for {kind.name}",
            why="ECS_AL2023_NVIDIA doesn't support p3 and g3, and Batch creates no environments with older images",
            fix="name another GPU with --gpu",
        )


def _values(job: Job, task: Task) -> dict[str, object]:
    return {
        "job": job.name,
        "task": task.name,
        "prefix": prefix_of(task),
        "mount": MOUNT,
        "nodes": nodes_of(job, task),
        "seconds": round(job.time_limit.total_seconds()),
        "master": own_master(job, task),
    }


def _submit(job: Job, kind: InstanceType) -> str:
    variables = {task.name: f"job_{number}" for number, task in enumerate(job.tasks)}
    tasks = [
        {
            "name": name_of(job, task),
            "definition": f"{prefix_of(task)}job-definition.json",
            "variable": variables[task.name],
            "after": variables[task.after] if task.after else "",
            "several": nodes_of(job, task) > 1,
        }
        for task in in_order(job)
    ]
    return render(
        "export/batch-submit.sh.j2",
        job=job.name,
        environment=environment_name(job, kind),
        tasks=tasks,
        secrets=bool(job.from_shell),
    )


def _document(path: str, request: Mapping[str, Any]) -> ExportFile:
    return ExportFile(path=path, content=f"{json.dumps(request, indent=2)}\n".encode())


_DOCKERFILE = f"""\
# Written by `kedge export`. The job's files on top of an image with the job's Python, such as one with torch:
#   docker build --build-arg BASE=pytorch/pytorch:latest -t IMAGE . && docker push IMAGE
ARG BASE
FROM ${{BASE}}
COPY . {FOLDER}/
"""
