"""A job, and the frozen specification that a launch works from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.disk import Disk, plan_disk
from orchestrator.core.interpreter import JobPython
from orchestrator.core.offer import Accelerators
from orchestrator.core.site import Site

DEFAULT_DEADLINE = timedelta(hours=1)


class SupervisorKind(StrEnum):
    """What keeps the training command alive on the machine."""

    SYSTEMD = "systemd"
    SYSTEMD_USER = "systemd-user"
    TMUX = "tmux"
    SCREEN = "screen"
    NOHUP = "nohup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """How the command is kept alive.

    Attributes:
        restarts: how many times a command that failed is started again; each start resumes.
        restart_after: the pause before each.
        grace: how long a command has to checkpoint and exit after SIGTERM, before SIGKILL.
    """

    kind: SupervisorKind = SupervisorKind.TMUX
    restarts: int = 3
    restart_after: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=60)


class AtEnd(StrEnum):
    """What becomes of a data volume when its run is torn down."""

    KEEP = "keep"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    """A snapshot is made, then the volume is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A data volume: made when there is none of its name, and used again when there is.

    Attributes:
        name: of the volume, within the account; it outlives runs.
        target: where it is mounted, relative to the working folder.
        size_gib: of a new one.
        iops: of a new one, where the provider sells them apart; None for what is sensible (core/disk.py).
        mibps: its throughput in MiB a second, likewise.
        snapshot_id: what a new one is filled from; None for a blank one.
        initialization_mibps: how quickly, in MiB a second, at a price of its own; None for as the provider pleases.
    """

    name: str
    target: str
    size_gib: int
    at_end: AtEnd = AtEnd.KEEP
    iops: int | None = None
    mibps: int | None = None
    snapshot_id: str | None = None
    initialization_mibps: int | None = None

    @property
    def disk(self) -> Disk:
        """The disk that it is.

        Raises:
            BadRequestError: no disk of this size can be so fast.
        """
        return plan_disk(self.size_gib, iops=self.iops, mibps=self.mibps)


class StartFrom(StrEnum):
    """Who starts the command on a new machine."""

    SSH = "ssh"
    """The laptop, once the machine answers."""
    BOOT = "boot"
    """The machine itself: it goes on when the laptop sleeps or dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What to run on: wishes, each of which narrows the offers.

    Attributes:
        provider: None takes the default one.
        regions: in the order in which to try them; none takes the provider's default.
        disk_gib: of the root disk; None takes what the offer comes with.
        disk_iops: of the root disk, where the provider sells them apart; None for what is sensible (core/disk.py).
        disk_mibps: its throughput in MiB a second, likewise.
        volumes: data volumes; one that exists pins the zone.
        max_usd_per_hour: offers above it are left out, and a spot machine is given up above it.
        usd_per_hour: a price to rehearse with; only the local provider takes it.
        site: where in the user's own account, and how it is reached.
    """

    provider: str | None = None
    regions: tuple[str, ...] = ()
    zone: str | None = None
    instance_type: str | None = None
    accelerators: Accelerators | None = None
    image_id: str | None = None
    use_spot: bool = False
    disk_gib: int | None = None
    disk_iops: int | None = None
    disk_mibps: int | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    max_usd_per_hour: Decimal | None = None
    usd_per_hour: Decimal | None = None
    site: Site = field(default_factory=Site)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMount:
    """A folder or file of the laptop's or of somebody else's, and where the command finds it.

    Attributes:
        source: an absolute path on the laptop, or a URL that the machine fetches (`s3://`, `https://`, `git+https://`,
            `hf://`, `kaggle://`).
        target: a path relative to the command's working folder.
        follows: where links may lead out of the source: what lies there, or below, is sent in their stead.
        written: the source as the job file has it, where a link leads from there to `source`; empty elsewhere.
    """

    source: str
    target: str
    follows: tuple[str, ...] = ()
    written: str = ""

    @property
    def is_fetched(self) -> bool:
        """The machine fetches it; it doesn't come from the laptop."""
        return "://" in self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the job's author expects of a run; compared with the deadline and with what is measured.

    Attributes:
        duration: of the whole run.
        first_step: from the command's start to its first step; a silent command is not reported as stalled before.
    """

    duration: timedelta | None = None
    first_step: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run and on what: one job file with one of its modes laid over it.

    Attributes:
        path: the job file, absolute; empty for a plain machine without a job.
        mode: the mode's name; empty where none was chosen.
        workdir: the folder whose code is sent, absolute; None sends none.
        envs: for setup and run, written in the job file or in a flag.
        secrets: names only; values are read from the laptop's environment when they are sent.
        inherited: names of variables that take the laptop's values (`null` under `envs`), kept as secrets are.
        setup: a shell script run once before the first start on a machine with this code.
        run: the shell script that is supervised; empty for a plain machine.
        resume: the one that is run instead where there is something to go on from; empty for the same one.
        resume_args: what is put at the end of `run` there; empty for nothing. A job has one of both at most.
        sudo: setup and run may become root on a cloud's machine.
        outputs: folders, relative to the working folder, that are results; they outlive a change of code.
        checkpoints: a folder, relative to the working folder, where the command writes its checkpoints, for
            commands that don't read KEDGE_CHECKPOINT_DIR; empty for those that do.
        left_behind_bytes: how much to keep of what the command writes elsewhere; None for the usual limit.
        budget_usd: the cap on the worst case; None for no cap.
        start: who starts the command on a new machine.
        recover: its runs are to be recovered, unless a flag says otherwise.
        bundled_trainer: the run command is kedge's own trainer, which travels with the code.
        sites: by provider: where in the user's own account machines go.
    """

    name: str
    path: str = ""
    mode: str = ""
    workdir: str | None = None
    num_nodes: int = 1
    resources: Resources = field(default_factory=Resources)
    envs: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    data: tuple[DataMount, ...] = ()
    setup: str = ""
    run: str = ""
    resume: str = ""
    resume_args: str = ""
    sudo: bool = False
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    left_behind_bytes: int | None = None
    deadline: timedelta = DEFAULT_DEADLINE
    budget_usd: Decimal | None = None
    supervisor: SupervisorSpec = field(default_factory=SupervisorSpec)
    start: StartFrom = StartFrom.SSH
    recover: bool = False
    expect: Expect = field(default_factory=Expect)
    bundled_trainer: bool = False
    sites: tuple[tuple[str, Site], ...] = ()

    def resources_at(self, provider: str, ssh_from: str = "") -> Resources:
        """Return the wishes as one provider is asked for them; `ssh_from` is who may reach its machines."""
        site = dict(self.sites).get(provider, Site())
        return replace(self.resources, site=replace(site, ssh_from=ssh_from))

    @property
    def later_run(self) -> str:
        """What is run instead of `run` where there is something to go on from; empty for the same."""
        return f"{self.run.rstrip()} {self.resume_args}" if self.resume_args else self.resume

    @property
    def from_shell(self) -> tuple[str, ...]:
        """Names of all that comes from the environment of whoever launches, and is never written down."""
        return (*self.secrets, *self.inherited)

    def is_on_volume(self, mount: DataMount) -> bool:
        """Tell whether data lies within a data volume."""
        return any(mount.target.startswith(f"{volume.target}/") for volume in self.resources.volumes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything that a launch needs to know before it looks at the world.

    Attributes:
        run_id: made once, when the launch begins; it outlives machines.
        provider: the one chosen.
        folder: where it was launched; commands given there mean this run.
        results: where its results go.
        job_digest: of the job file's bytes; tells whether the file has changed since.
        keep: leave the machine to its deadline when the command is over.
        recover: a machine that is taken away is replaced, by the command that launches or by `recover`.
        until: when a run that is recovered must be over, whatever machines it has; None for no such instant.
        ssh_from: who may reach its machines over SSH, as CIDR; empty for the present address of whoever acts on it.
        python: of this computer, on top of which the job's environment is made; None on clouds, and without a command.
    """

    run_id: str
    provider: str
    job: Job
    folder: str = ""
    results: str = ""
    job_digest: str = ""
    keep: bool = False
    recover: bool = False
    until: datetime | None = None
    ssh_from: str = ""
    python: JobPython | None = None

    @property
    def resources(self) -> Resources:
        """What its provider is asked for."""
        return self.job.resources_at(self.provider, self.ssh_from)
