"""What a job file may say. The same models refuse mistakes and describe the file to editors (schema.py)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.adapters.jobfile.fields import (
    Bytes,
    DiskSize,
    Dollars,
    Duration,
    Ends,
    Folder,
    Gpus,
    GroupId,
    JobName,
    JumpHost,
    Kind,
    ModeName,
    Nodes,
    Place,
    ProxyCommand,
    Regions,
    Restarts,
    Secrets,
    SnapshotId,
    Source,
    Speed,
    Start,
    SubnetId,
    Tags,
    Text,
    Variable,
    VariableValue,
    VolumeName,
    VpcId,
    Word,
    Workdir,
)


def _without_defaults(schema: dict[str, Any]) -> None:
    # Each default is None, which says nothing; what happens then is in the descriptions.
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_without_defaults)


class ResourcesPart(_Part, title="resources"):
    """What to run on: wishes, each of which narrows the offers."""

    infra: Place | None = Field(
        default=None,
        description="Provider, region and zone, as many as you care about; `*` for any.",
        examples=["local", "aws", "aws/us-east-1", "do/tor1"],
    )
    cloud: Word | None = Field(default=None, description="The provider; the older word for `infra`.", examples=["aws"])
    region: Regions | None = Field(
        default=None,
        description="The region, or several with commas between them, in the order in which to try them.",
        examples=["us-east-1", "us-east-1,us-west-2"],
    )
    zone: Word | None = Field(default=None, description="The zone; the older word for the third part of `infra`.")
    accelerators: Gpus | None = Field(
        default=None,
        description="The kind of GPU and how many.",
        examples=["MI300X", "A10G:4", {"H100": 8}],
    )
    instance_type: Word | None = Field(
        default=None, description="The provider's own name for a kind of machine.", examples=["g5.xlarge"]
    )
    image_id: Word | None = Field(
        default=None, description="The provider's own name for a disk image; default: its GPU image."
    )
    use_spot: bool | None = Field(
        default=None, description="Rent capacity that can be taken away, for less; default: false."
    )
    max_hourly_cost: Dollars | None = Field(
        default=None,
        description="Offers that cost more per hour are left out; a spot machine is given up above it.",
        examples=[1.5],
    )
    disk_size: DiskSize | None = Field(
        default=None,
        description="The root disk in GiB; default: what the offer comes with.",
        examples=[256, "256GB"],
    )
    disk_throughput: Speed | None = Field(
        default=None,
        description="Of the root disk, in MiB/s, on AWS; default: 500 for a disk of 500 GiB or more, else 125.",
        examples=[500],
    )
    disk_iops: Speed | None = Field(
        default=None,
        description="Of the root disk, on AWS; default: 3000, or as many as its throughput needs.",
        examples=[6000],
    )


class MountPart(_Part, title="data"):
    """A file or folder of the laptop's, or an address that the machine fetches, and where the command finds it."""

    source: Source = Field(
        description="A file or folder on the laptop, relative to the job file's folder, or an address that the machine "
        "fetches: s3://, https://, git+https://, hf:// or kaggle://."
    )
    target: Source = Field(description="Where it is on the machine, relative to the working folder.")
    follow_links: bool | None = Field(
        default=None,
        description="Links that lead out of the source are followed, and what they lead to is sent; default: false, "
        "which refuses them.",
    )


class VolumePart(_Part, title="volumes"):
    """A disk of its own, which outlives machines and, if it is kept, runs."""

    target: Folder = Field(description="Where it is mounted, relative to the working folder.")
    name: VolumeName = Field(description="Its name in your account; one that is there is used again.")
    size: DiskSize = Field(description="Of a new one, in GiB.", examples=[500])
    throughput: Speed | None = Field(
        default=None,
        description="Of a new one on AWS, in MiB/s; default: 500 for a volume of 500 GiB or more, else 125.",
        examples=[1000],
    )
    iops: Speed | None = Field(
        default=None,
        description="Of a new one on AWS; default: 3000, or as many as its throughput needs.",
        examples=[6000],
    )
    snapshot: SnapshotId | None = Field(
        default=None,
        description="What a new one on AWS is filled from: an EBS snapshot in its region; default: it is blank.",
        examples=["snap-0a1b2c3d4e5f60718"],
    )
    initialization_rate: Speed | None = Field(
        default=None,
        description="How quickly, in MiB/s: 100 to 300, charged once, by what `snapshot` holds; only with one.",
        examples=[200],
    )
    at_end: Ends | None = Field(
        default=None, description="What becomes of it when the run is torn down; default: keep."
    )


class SupervisorPart(_Part, title="supervisor"):
    """What keeps the command alive on the machine."""

    kind: Kind | None = Field(default=None, description="The program that does it; default: tmux.")
    restarts: Restarts | None = Field(
        default=None, description="How often a command that failed is started again; default: 3."
    )
    restart_after: Duration | None = Field(
        default=None, description="The pause before each restart; default: 10s.", examples=["10s"]
    )
    grace: Duration | None = Field(
        default=None,
        description="From SIGTERM to SIGKILL: the time to write a checkpoint; default: 60s.",
        examples=["60s"],
    )


class ResumePart(_Part, title="resume"):
    """What is run instead of `run` where there is something to go on from."""

    args: Text | None = Field(
        default=None,
        description="Arguments that are put at the end of `run`.",
        examples=['--resume "$KEDGE_CHECKPOINT"'],
    )
    command: Text | None = Field(default=None, description="A whole command; the same as the text by itself.")


class ExpectPart(_Part, title="expect"):
    """What you expect of a run."""

    duration: Duration | None = Field(
        default=None,
        description="Of the whole run; a launch whose deadline is shorter is refused.",
        examples=["45m"],
    )
    first_step: Duration | None = Field(
        default=None,
        description="Until the first training step; nothing counts as stalled before.",
        examples=["2m"],
    )


def _list_of_one(value: object) -> object:
    return [value] if isinstance(value, str) else value


class AwsPart(_Part, title="provider.aws"):
    """Your own network at AWS, the way into it, and tags. Nothing of it is ever changed or deleted."""

    vpc: VpcId | None = Field(default=None, description="The network; default: that of the subnet or the group.")
    subnet: (
        Annotated[
            tuple[SubnetId, ...],
            BeforeValidator(_list_of_one, json_schema_input_type=list[SubnetId] | SubnetId),
        ]
        | None
    ) = Field(default=None, description="Where machines may be, one or several; default: the subnets of the VPC.")
    security_group: GroupId | None = Field(
        default=None,
        description="Who may reach machines; default: a group of kedge's, open to your address and removed at the end.",
    )
    tags: Tags | None = Field(
        default=None,
        description="What everything that a run makes carries, for the bill.",
        examples=[{"team": "vision", "cost-center": "42"}],
    )
    jump_host: JumpHost | None = Field(
        default=None,
        description="An SSH server through which machines are reached, or its name in your SSH configuration.",
        examples=["ec2-user@bastion.example.org"],
    )
    proxy_command: ProxyCommand | None = Field(
        default=None,
        description="A command of this computer's that carries the connection; %h and %p are the machine's address and "
        "port. For your settings; in a job file it needs --allow-proxy-command.",
        examples=["ssh -W %h:%p bastion"],
    )
    private_ip: bool | None = Field(
        default=None,
        description="Machines have no public address; default: true with jump_host or proxy_command, else false.",
    )


class ProviderPart(_Part, title="provider"):
    """What belongs to your account at a provider."""

    aws: AwsPart | None = Field(default=None, description="Your own network at AWS, the way into it, and tags.")


class SettingsPart(_Part, title="kedge settings"):
    """Your settings for all jobs; a job file's own `provider:` block wins, key by key."""

    provider: ProviderPart | None = Field(default=None, description="What belongs to your account at a provider.")


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
Folders = Annotated[tuple[Folder, ...], BeforeValidator(_list_of_one, json_schema_input_type=list[Folder] | Folder)]
Supervisor = Annotated[
    SupervisorPart, BeforeValidator(_supervisor_of_kind, json_schema_input_type=SupervisorPart | Kind)
]


Resume = Annotated[ResumePart, BeforeValidator(_resume_of_text, json_schema_input_type=ResumePart | str)]


class ModePart(_Part, title="mode"):
    """A named variant of the job: laid over it; mappings are merged key by key, anything else is replaced."""

    envs: dict[Variable, VariableValue] | None = Field(
        default=None,
        description="Variables for `setup` and `run`; one without a value takes the laptop's, kept as a secret is.",
        examples=[{"EPOCHS": 10}],
    )
    secrets: Secrets | None = Field(
        default=None,
        description="Names of variables whose values come from the laptop's environment, never from a file.",
        examples=[{"HF_TOKEN": None}],
    )
    resources: ResourcesPart | None = Field(default=None, description="What to run on.")
    setup: Text | None = Field(
        default=None, description="A shell script run before the first start on a machine with this code."
    )
    run: Text | None = Field(
        default=None,
        description="The shell script that trains.",
        examples=["python train.py --epochs $EPOCHS"],
    )
    resume: Resume | None = Field(
        default=None,
        description="What is run instead of `run` where there is something to go on from (KEDGE_RESUME is 1): a shell "
        "script, or {args: arguments for `run`}; default: `run`.",
        examples=["python train.py --init_from=resume", {"args": '--resume "$KEDGE_CHECKPOINT"'}],
    )
    sudo: bool | None = Field(
        default=None,
        description="Whether `setup` and `run` may become root on a cloud's machine; default: false.",
    )
    data: Data | None = Field(
        default=None,
        description="Files and folders of the laptop's to send: {target: source}, {target: {source, follow_links}}, "
        "or a list.",
        examples=[{"data": "~/datasets/digits"}],
    )
    volumes: Volumes | None = Field(
        default=None,
        description="Data volumes: {target: {name, size, throughput, iops, snapshot, at_end}}, or a list.",
        examples=[{"data/imagenet": {"name": "imagenet", "size": 500}}],
    )
    start: Start | None = Field(
        default=None,
        description="Who starts the command on a new machine: `ssh` (this computer, the default) or `boot` (the "
        "machine itself, which needs no secrets and no data of the laptop's).",
    )
    outputs: Folders | None = Field(
        default=None, description="Folders that hold results; they are brought home.", examples=[["results"]]
    )
    checkpoints: Folder | None = Field(
        default=None,
        description="Where `run` writes checkpoints, if it doesn't read KEDGE_CHECKPOINT_DIR.",
        examples=["checkpoints"],
    )
    left_behind: Bytes | None = Field(
        default=None,
        description="How much of what `run` writes elsewhere than in `outputs` and `checkpoints` is kept under "
        "left-behind/, newest first; 0 keeps nothing; default: 1GB with an object store, 100MB without one.",
        examples=["5GB", 0],
    )
    deadline: Duration | None = Field(
        default=None,
        description="When the machine must be gone, counted from its creation; default: 1h.",
        examples=["2h", "1h30m"],
    )
    budget: Dollars | None = Field(
        default=None,
        description="The most that the run may cost, in US dollars; checked before anything is created.",
        examples=[10, "$10"],
    )
    supervisor: Supervisor | None = Field(
        default=None, description="What keeps the command alive: a name, or a mapping.", examples=["tmux"]
    )
    recover: bool | None = Field(
        default=None,
        description="Replace a machine that is taken away, as `launch --recover` does; default: false.",
    )
    expect: ExpectPart | None = Field(default=None, description="What you expect of a run.")
    provider: ProviderPart | None = Field(
        default=None,
        description="What belongs to your account at a provider.",
        examples=[{"aws": {"subnet": "subnet-0123456789abcdef0", "tags": {"team": "vision"}}}],
    )


class JobPart(ModePart, title="kedge job file"):
    """A kedge job file."""

    name: JobName | None = Field(
        default=None, description="The job's name; default: the name of the folder or the file."
    )
    workdir: Workdir | None = Field(
        default=None,
        description="The folder whose code is sent, relative to the job file's; default: none.",
        examples=["."],
    )
    num_nodes: Nodes | None = Field(default=None, description="How many machines; only 1 for now.")
    file_mounts: FileMounts | None = Field(default=None, description="SkyPilot's word for `data`: {target: source}.")
    modes: dict[ModeName, ModePart | None] | None = Field(
        default=None, description="Named variants of the job.", examples=[{"fast": {"envs": {"EPOCHS": 1}}}]
    )
