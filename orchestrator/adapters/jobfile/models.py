"""The models of a job file. They validate it, and schema.py makes the editors' JSON schema from them."""

from __future__ import annotations

from pydantic import Field

from orchestrator.adapters.jobfile.parts import (
    Checks,
    Data,
    FileMounts,
    Folders,
    JobExpectPart,
    Outputs,
    Part,
    ResourcesPart,
    Resume,
    Supervisor,
    Volumes,
)
from orchestrator.adapters.jobfile.provider_parts import ProviderPart
from orchestrator.adapters.jobfile.task_parts import Tasks
from orchestrator.adapters.jobfile.values.fields import (
    AfterFailure,
    Arguments,
    Bytes,
    Dollars,
    Duration,
    Elastic,
    Folder,
    JobName,
    ModeName,
    Nodes,
    Secrets,
    Start,
    Text,
    Variable,
    VariableValue,
    Workdir,
)


class ModePart(Part, title="keys of a job and of a mode"):
    """What a job and each of its modes may say."""

    envs: dict[Variable, VariableValue] | None = Field(
        default=None,
        description="Variables for `setup` and `run`; one without a value takes the laptop's, as a secret. "
        "Names that begin with KEDGE_ are reserved.",
        examples=[{"EPOCHS": 10}],
    )
    secrets: Secrets | None = Field(
        default=None,
        description="Names of variables whose values come from the laptop's environment, never from a file.",
        examples=[{"HF_TOKEN": None}],
    )
    num_nodes: Nodes | None = Field(
        default=None,
        description="How many machines, each with these resources: rented together in one place, or not at all; "
        "default: 1.",
        examples=[4],
    )
    elastic: Elastic | None = Field(
        default=None,
        description="With how many machines the command can go on if some are lost: the least and the most; default: "
        "with all of them only.",
        examples=["2..4"],
    )
    resources: ResourcesPart | None = Field(default=None, description="What to run on.")
    check: Checks | None = Field(
        default=None,
        description="A command, or a list of them, that checks the data on this computer, after your yes and before "
        "anything is created: one line each, without a shell; `$NAME` is one of the job's `envs`; default: none.",
        examples=["python -m trainer check pcdiff --data datasets/SkullBreak"],
    )
    setup: Text | None = Field(
        default=None,
        description="A shell script, run once before the first start on a machine with this code; default: nothing.",
        examples=["pip install -r requirements.txt"],
    )
    run: Text | None = Field(
        default=None,
        description="The shell script that trains; it is restarted after a failure. Without it you get a machine "
        "without a command.",
        examples=["python train.py --epochs $EPOCHS"],
    )
    resume: Resume | None = Field(
        default=None,
        description="Runs instead of `run` if there is something to resume from (KEDGE_RESUME is 1): a shell "
        "script, or {args: arguments for `run`}; default: `run`.",
        examples=["python train.py --init_from=resume", {"args": '--resume "$KEDGE_CHECKPOINT"'}],
    )
    tasks: Tasks | None = Field(
        default=None,
        description="Several commands on one machine, instead of `run`: {NAME: {run, gpus, after, ...}}.",
        examples=[{"fit": {"gpus": "0-6", "run": "python fit.py"}, "score": {"gpus": 7, "run": "python score.py"}}],
    )
    on_failure: AfterFailure | None = Field(
        default=None,
        description="What happens to the other tasks when one has failed for good: `go-on` (the default) or "
        "`stop-all`.",
    )
    setup_inputs: Folders | None = Field(
        default=None,
        description="Files, folders and globs of the code whose change repeats `setup`; default: requirements*.txt, "
        "pyproject.toml, setup.py, environment.yml, *.lock and similar ones, and the files that `setup` names.",
        examples=[["requirements", "native/build.sh"]],
    )
    sudo: bool | None = Field(
        default=None,
        description="Whether `setup` and `run` may become root on a cloud machine; default: false. The plan lists "
        "what that exposes.",
    )
    data: Data | None = Field(
        default=None,
        description="Files and folders on the laptop, or addresses that the machine fetches: {target: source}, "
        "{target: {source, follow_links}}, or a list.",
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
        "machine itself, with code from the bucket; docs/job-file.md says how it gets secrets).",
    )
    outputs: Outputs | None = Field(
        default=None,
        description="Folders with results, which are fetched at the end, as is what `run` writes to $KEDGE_OUTPUT_DIR; "
        "of a folder that is named with wildcards, only what matches is fetched.",
        examples=[["results"], ["figures", "results/*.png"]],
    )
    checkpoints: Folder | None = Field(
        default=None,
        description="The folder where `run` writes checkpoints, if it doesn't write to $KEDGE_CHECKPOINT_DIR. They are "
        "uploaded to the object store while it runs, and restored on a new machine.",
        examples=["checkpoints"],
    )
    left_behind: Bytes | None = Field(
        default=None,
        description="The limit for copies of files that `run` writes outside `outputs` and `checkpoints`, newest "
        "first, under left-behind/; 0 for none; default: 1GB with an object store, 100MB without one.",
        examples=["5GB", 0],
    )
    deadline: Duration | None = Field(
        default=None,
        description="When the machine must be gone, counted from its creation; default: 1h.",
        examples=["2h", "1h30m"],
    )
    budget: Dollars | None = Field(
        default=None,
        description="The most that the run may cost, in US dollars; the worst case is checked before anything is "
        "created; default: no limit but the deadline.",
        examples=[10, "$10"],
    )
    supervisor: Supervisor | None = Field(
        default=None, description="What keeps the command alive: a name, or a mapping.", examples=["tmux"]
    )
    recover: bool | None = Field(
        default=None,
        description="Whether to replace a machine that is reclaimed, as `launch --recover` does; default: false.",
    )
    expect: JobExpectPart | None = Field(default=None, description="What you expect of a run.")
    provider: ProviderPart | None = Field(
        default=None,
        description="What belongs to your account at a provider.",
        examples=[{"aws": {"subnet": "subnet-0123456789abcdef0", "tags": {"team": "vision"}}}],
    )


class VariantPart(ModePart, title="mode"):
    """A named variant of the job. Mappings are merged into the job's key by key, anything else is replaced."""

    arguments: Arguments | None = Field(
        default=None,
        description="Names of variables whose values follow the mode's name on the command line: "
        '`--mode "custom 100 512"`; default: none.',
        examples=[["EPOCHS", "BATCH_SIZE"]],
    )

    @property
    def is_open(self) -> bool:
        """Whether the time that it takes depends on its arguments: it says no expected duration of its own."""
        return bool(self.arguments) and (self.expect is None or self.expect.duration is None)


class JobPart(ModePart, title="kedge job file"):
    """A kedge job file."""

    name: JobName | None = Field(
        default=None,
        description="The job's name, part of every run's id: a-z, 0-9 and `-`, at most 30; default: the folder's name "
        "for kedge.yaml, else the file's name.",
        examples=["classifier"],
    )
    workdir: Workdir | None = Field(
        default=None,
        description="The folder whose code is sent, except what git ignores, relative to the job file's folder; "
        "`run` starts in it; default: no code is sent.",
        examples=["."],
    )
    file_mounts: FileMounts | None = Field(default=None, description="SkyPilot's word for `data`: {target: source}.")
    modes: dict[ModeName, VariantPart | None] | None = Field(
        default=None, description="Named variants of the job.", examples=[{"fast": {"envs": {"EPOCHS": 1}}}]
    )


class FlagResourcesPart(ResourcesPart):
    """The resources that flags may set: any provider's name, which is checked later, and a price."""

    provider: Text | None = None
    usd_per_hour: Dollars | None = None


class FlagsPart(ModePart):
    """What flags may set in a job (overrides.py); not a part of any file."""

    resources: FlagResourcesPart | None = None
