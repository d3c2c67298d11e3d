"""The models of a job file's blocks: resources, data, volumes, supervisor, resume and expectations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.adapters.jobfile.values.fields import (
    Argv,
    DiskSize,
    Dollars,
    Duration,
    Ends,
    ExpectBasis,
    Folder,
    Gpus,
    Kind,
    OutputPath,
    Place,
    Regions,
    Restarts,
    Runs,
    SnapshotId,
    Source,
    Speed,
    Text,
    VolumeName,
    Word,
)


def _without_defaults(schema: dict[str, Any]) -> None:
    # Each default is None, which tells editors nothing; the descriptions state the real default.
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class Part(BaseModel):
    """A mapping in a job file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_without_defaults)

    def given(self) -> dict[str, Any]:
        """Return the keys that have a value."""
        values = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: value for name, value in values if value is not None}


def list_of_one(value: object) -> object:
    """Turn a single value into a list."""
    return [value] if isinstance(value, str) else value


class ResourcesPart(Part, title="resources"):
    """What to run on: requirements, each of which narrows the offers."""

    infra: Place | None = Field(
        default=None,
        description="The provider, and if you like its region and zone; `*` for any; default: the default provider.",
        examples=["local", "aws", "aws/us-east-1", "do/tor1"],
    )
    cloud: Word | None = Field(default=None, description="The provider; an older key, use `infra`.", examples=["aws"])
    region: Regions | None = Field(
        default=None,
        description="The region, or several, separated by commas, which are tried in that order.",
        examples=["us-east-1", "us-east-1,us-west-2"],
    )
    zone: Word | None = Field(default=None, description="The zone; an older key, use `infra`.", examples=["us-east-1a"])
    accelerators: Gpus | None = Field(
        default=None,
        description="The kind of GPU and how many, in upper or lower case; default: any machine.",
        examples=["MI300X", "A10G:4", {"H100": 8}],
    )
    instance_type: Word | None = Field(
        default=None, description="The provider's own name for a kind of machine.", examples=["g5.xlarge"]
    )
    image_id: Word | None = Field(
        default=None,
        description="The provider's own name for a disk image; default: its GPU image.",
        examples=["ami-0a1b2c3d4e5f60718"],
    )
    use_spot: bool | None = Field(
        default=None,
        description="Rent cheaper capacity that the provider can reclaim; default: false.",
        examples=[True],
    )
    max_hourly_cost: Dollars | None = Field(
        default=None,
        description="Leaves out offers that cost more per hour, and gives up a spot machine above this price.",
        examples=[1.5],
    )
    disk_size: DiskSize | None = Field(
        default=None,
        description="The root disk in GiB; default: what the offer comes with.",
        examples=[256, "256GB"],
    )
    disk_throughput: Speed | None = Field(
        default=None,
        description="The root disk's throughput on AWS, in MiB/s; default: 500 for 500 GiB or more, else 125.",
        examples=[500],
    )
    disk_iops: Speed | None = Field(
        default=None,
        description="The root disk's IOPS on AWS; default: 3000, or as many as its throughput needs.",
        examples=[6000],
    )


class MountPart(Part, title="data"):
    """A file or folder of the laptop's, or an address that the machine fetches, and where the command finds it."""

    source: Source = Field(
        description="A file or folder on the laptop, relative to the job file's folder, or an address that the machine "
        "fetches: s3://, https://, git+https://, hf:// or kaggle://."
    )
    target: Source = Field(description="Where `run` finds it on the machine, relative to the folder that it starts in.")
    follow_links: bool | None = Field(
        default=None,
        description="Whether to follow links that leave the source, and send their targets; default: false, "
        "which refuses them.",
    )


class VolumePart(Part, title="volumes"):
    """A disk of its own, which outlives machines and, if it is kept, runs."""

    target: Folder = Field(description="Where it is mounted, relative to the folder that `run` starts in.")
    name: VolumeName = Field(description="Its name in your account; an existing volume is reused.")
    size: DiskSize = Field(description="A new volume's size, in GiB.", examples=[500])
    throughput: Speed | None = Field(
        default=None,
        description="A new volume's throughput on AWS, in MiB/s; default: 500 for 500 GiB or more, else 125.",
        examples=[1000],
    )
    iops: Speed | None = Field(
        default=None,
        description="A new volume's IOPS on AWS; default: 3000, or as many as its throughput needs.",
        examples=[6000],
    )
    snapshot: SnapshotId | None = Field(
        default=None,
        description="The source of a new volume on AWS: an EBS snapshot in its region; default: a blank volume.",
        examples=["snap-0a1b2c3d4e5f60718"],
    )
    initialization_rate: Speed | None = Field(
        default=None,
        description="How quickly it is filled from `snapshot`, in MiB/s: 100 to 300; charged once.",
        examples=[200],
    )
    at_end: Ends | None = Field(
        default=None,
        description="What becomes of it at teardown; default: `keep`. A kept volume continues to bill.",
    )


class SupervisorPart(Part, title="supervisor"):
    """What keeps the command alive on the machine."""

    kind: Kind | None = Field(default=None, description="The program that runs it; default: tmux.")
    restarts: Restarts | None = Field(
        default=None, description="How often a failed command is restarted; default: 3.", examples=[0]
    )
    restart_after: Duration | None = Field(
        default=None, description="The pause before each restart; default: 10s.", examples=["10s"]
    )
    grace: Duration | None = Field(
        default=None,
        description="The time between SIGTERM and SIGKILL, for writing a checkpoint; default: 60s.",
        examples=["60s"],
    )


class ResumePart(Part, title="resume"):
    """What runs instead of `run` if there is something to resume from."""

    args: Text | None = Field(
        default=None,
        description="Arguments that are appended to `run`.",
        examples=['--resume "$KEDGE_CHECKPOINT"'],
    )
    command: Text | None = Field(default=None, description="A whole shell script; `resume: TEXT` is short for it.")


class ExpectPart(Part, title="tasks.expect"):
    """What you expect of a task."""

    duration: Duration | None = Field(
        default=None,
        description="The duration of the whole run; a shorter deadline is refused.",
        examples=["45m"],
    )
    first_step: Duration | None = Field(
        default=None,
        description="The time until the first training step; before it, nothing counts as stalled.",
        examples=["2m"],
    )


class JobExpectPart(ExpectPart, title="expect"):
    """What you expect of a run."""

    basis: ExpectBasis | None = Field(
        default=None,
        description="Where `duration` is from: `published`, `measured` or `estimated`, which plans and tables say; "
        "default: not said.",
    )
    runs: Runs | None = Field(
        default=None,
        description="How many runs of it you plan, for `kedge plan --all-modes`; default: 1, or 0 for a mode with "
        "`arguments`.",
        examples=[4],
    )
    budget: Dollars | None = Field(
        default=None,
        description="What the planned runs of all modes may cost together, for `kedge plan --all-modes`; the job's own "
        "`budget` is one run's.",
        examples=[100],
    )


def _mounts_of_mapping(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return [{"target": target, "source": source} for target, source in value.items()]


def _data_of_mapping(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return [
        {"target": target, **said} if isinstance(said, dict) else {"target": target, "source": said}
        for target, said in value.items()
    ]


def _supervisor_of_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _resume_of_text(value: object) -> object:
    return {"command": value} if isinstance(value, str) else value


Data = Annotated[
    tuple[MountPart, ...],
    BeforeValidator(_data_of_mapping, json_schema_input_type=list[MountPart] | dict[str, str | dict[str, Any]]),
]
FileMounts = Annotated[
    tuple[MountPart, ...], BeforeValidator(_mounts_of_mapping, json_schema_input_type=dict[str, str])
]


def _volumes_of_mapping(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return [{"target": target, **said} if isinstance(said, dict) else said for target, said in value.items()]


Volumes = Annotated[
    tuple[VolumePart, ...],
    BeforeValidator(_volumes_of_mapping, json_schema_input_type=list[VolumePart] | dict[str, dict[str, Any]]),
]
Folders = Annotated[tuple[Folder, ...], BeforeValidator(list_of_one, json_schema_input_type=list[Folder] | Folder)]
Checks = Annotated[tuple[Argv, ...], BeforeValidator(list_of_one, json_schema_input_type=list[Argv] | Argv)]
Outputs = Annotated[
    tuple[OutputPath, ...], BeforeValidator(list_of_one, json_schema_input_type=list[OutputPath] | OutputPath)
]
Supervisor = Annotated[
    SupervisorPart, BeforeValidator(_supervisor_of_kind, json_schema_input_type=SupervisorPart | Kind)
]


Resume = Annotated[ResumePart, BeforeValidator(_resume_of_text, json_schema_input_type=ResumePart | str)]
