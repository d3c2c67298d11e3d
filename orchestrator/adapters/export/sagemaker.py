"""Renders a job for SageMaker: a CreateTrainingJob request, the container's command, and `submit.sh`.

The request has placeholders (`@IMAGE@`) for what only the account's owner knows; `submit.sh` fills them in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.adapters.export.contract import render_contract
from orchestrator.adapters.export.disks import sagemaker_disk_gib
from orchestrator.adapters.export.model import SCRIPT, ExportFile, nodes_of, own_master, prefix_of
from orchestrator.adapters.export.slurm import require_time
from orchestrator.adapters.host.templates import render
from orchestrator.adapters.providers.aws.market.catalog import InstanceType
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job

CHECKPOINTS = "/opt/ml/checkpoints"
STOPS_BEFORE_S = 120
"""What SageMaker itself gives a container, which then uploads. fact: sagemaker-stop"""
_LONGEST = timedelta(days=28)
_MOST_CHANNELS = 20
_JOB_CHANNEL = "kedge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Where SageMaker puts one of the job's data.

    Attributes:
        target: where the command finds it, relative to the working folder.
        path: where SageMaker puts it, in /opt/ml/input/data.
        address: its place in S3; `@S3@` is the user's own.
    """

    target: str
    name: str
    path: str
    address: str


@cache
def training_types() -> frozenset[str]:
    """Return EC2's names of the machine types that SageMaker trains on, from botocore's description of its API."""
    # Loaded here: its description is large, and no other command needs it.
    from botocore.loaders import Loader  # noqa: PLC0415

    names = Loader().load_service_model("sagemaker", "service-2")["shapes"]["TrainingInstanceType"]["enum"]
    return frozenset(name.removeprefix("ml.") for name in names)


def render_sagemaker(job: Job, kind: InstanceType) -> Iterator[ExportFile]:
    """Yield the files.

    Raises:
        BadRequestError: SageMaker can't run the job.
    """
    _require_possible(job)
    channels = channels_of(job)
    yield from render_contract(job, kind.gpus, stops_before_seconds=STOPS_BEFORE_S, needs_secrets=False)
    script = render(
        "export/sagemaker.sh.j2",
        job=job.name,
        prefix=prefix_of(job.tasks[0]),
        channels=channels,
        seconds=round(job.time_limit.total_seconds()),
        master=own_master(job, job.tasks[0]),
    )
    yield ExportFile(path="sagemaker.sh", content=script.encode(), mode=SCRIPT)
    request = json.dumps(training_job(job, kind, channels), indent=2)
    yield ExportFile(path="training-job.json", content=f"{request}\n".encode())
    yield ExportFile(path="values.sh", content=render("export/sagemaker-values.sh.j2").encode(), is_form=True)
    submit = render("export/sagemaker-submit.sh.j2", job=job.name)
    yield ExportFile(path="submit.sh", content=submit.encode(), mode=SCRIPT)


def training_job(job: Job, kind: InstanceType, channels: Sequence[Channel]) -> dict[str, Any]:
    """Make a CreateTrainingJob request."""
    seconds = round(job.time_limit.total_seconds())
    spot = job.resources.use_spot
    inputs = [_input(_JOB_CHANNEL, "@S3@/job/@JOB@/"), *(_input(each.name, each.address) for each in channels)]
    return {
        "TrainingJobName": "@JOB@",
        "AlgorithmSpecification": {
            "TrainingImage": "@IMAGE@",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["bash", f"/opt/ml/input/data/{_JOB_CHANNEL}/sagemaker.sh"],
        },
        "RoleArn": "@ROLE@",
        # The run that the job goes on with, whose name is that of its first job.
        "Environment": {"EXPORT_RUN_ID": "@RUN@"},
        "InputDataConfig": inputs,
        "OutputDataConfig": {"S3OutputPath": "@S3@/output/"},
        "CheckpointConfig": {"S3Uri": "@S3@/runs/@RUN@/", "LocalPath": CHECKPOINTS},
        "ResourceConfig": {
            "InstanceType": f"ml.{kind.name}",
            "InstanceCount": nodes_of(job, job.tasks[0]),
            "VolumeSizeInGB": sagemaker_disk_gib(job.resources, kind),
        },
        "EnableManagedSpotTraining": spot,
        # One deadline for waiting and running together, as of a run that kedge recovers. fact: sagemaker-max-wait
        "StoppingCondition": {
            "MaxRuntimeInSeconds": seconds,
            **({"MaxWaitTimeInSeconds": seconds} if spot else {}),
        },
        "Tags": [{"Key": "kedge-job", "Value": job.name}],
    }


def channels_of(job: Job) -> tuple[Channel, ...]:
    """Return a channel for each of the job's data.

    Raises:
        BadRequestError: there are more than a training job can have.
    """
    if len(job.data) >= _MOST_CHANNELS:
        raise BadRequestError(
            f"SageMaker takes at most {_MOST_CHANNELS - 1} folders of data",
            why=f"the job has {len(job.data)}, and one more is for its code",
            fix="put them into one folder",
        )
    return tuple(_channel(number, mount) for number, mount in enumerate(job.data))


def is_in_s3(mount: DataMount) -> bool:
    """Tell whether SageMaker reads the data where it is."""
    return mount.source.startswith("s3://") and "?" not in mount.source


def is_file(mount: DataMount) -> bool:
    """Tell whether the data is one file."""
    if mount.is_fetched:
        return not mount.source.endswith("/") and is_in_s3(mount)
    return Path(mount.source).is_file()


def _channel(number: int, mount: DataMount) -> Channel:
    name = f"data-{number}"
    if is_in_s3(mount):
        file = mount.source.rpartition("/")[2] if is_file(mount) else ""
        return Channel(target=mount.target, name=name, path=f"{name}/{file}".rstrip("/"), address=mount.source)
    file = mount.target.rpartition("/")[2] if is_file(mount) else ""
    address = f"@S3@/data/{mount.target}" + ("" if file else "/")
    return Channel(target=mount.target, name=name, path=f"{name}/{file}".rstrip("/"), address=address)


def _input(name: str, address: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": address, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, "InputMode": "File"}


def _require_possible(job: Job) -> None:
    if len(job.tasks) > 1:
        raise BadRequestError(
            "SageMaker runs one command in a job",
            why=f"the job has the tasks {', '.join(task.name for task in job.tasks)}",
            fix="export it to batch or slurm, which run a job for each task",
        )
    if job.time_limit > _LONGEST:
        raise BadRequestError(
            "SageMaker ends each job after 28 days", fix="set an earlier deadline with --ttl, such as 28d"
        )
    require_time(job, job.grace + timedelta(seconds=STOPS_BEFORE_S))
