"""The job, its parts, and the frozen launch specification made from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec

from orchestrator.core.offer import Accelerators
from orchestrator.core.values.disk import Disk, plan_disk
from orchestrator.core.values.interpreter import JobPython
from orchestrator.core.values.site import Site

DEFAULT_TIME_LIMIT = timedelta(hours=1)

OF_A_PROVIDER = "of a provider"
"""Metadata key of fields that have a meaning at one provider only; they are reset if another provider is chosen."""
_FORGOTTEN = {OF_A_PROVIDER: True}


class SupervisorKind(StrEnum):
    """The program that keeps the training command alive on the machine."""

    SYSTEMD = "systemd"
    SYSTEMD_USER = "systemd-user"
    TMUX = "tmux"
    SCREEN = "screen"
    NOHUP = "nohup"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """How the command is kept alive.

    Attributes:
        restarts: how many times a failed command is started again; each start resumes.
        restart_after: the pause before each restart.
        grace: how long a command may take to checkpoint and exit after SIGTERM, before SIGKILL.
    """

    kind: SupervisorKind = SupervisorKind.TMUX
    restarts: int = 3
    restart_after: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=60)


class AtEnd(StrEnum):
    """What happens to a data volume when its run is torn down."""

    KEEP = "keep"
    DELETE = "delete"
    SNAPSHOT = "snapshot"
    """A snapshot is made, then the volume is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSpec:
    """A data volume: reused if one with its name exists, otherwise created.

    Attributes:
        name: unique within the account; the volume outlives runs.
        target: where it is mounted, relative to the working folder.
        size_gib: for a new volume.
        iops: for a new volume, if the provider sells IOPS separately; None: a sensible value (core/values/disk.py).
        mibps: its throughput in MiB a second, likewise.
        snapshot_id: the snapshot that a new volume is filled from; None for a blank volume.
        initialization_mibps: the rate to fill it at, in MiB a second, which costs extra; None: the provider's default.
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
        """The volume's size and speed.

        Raises:
            BadRequestError: a disk of this size can't be that fast.
        """
        return plan_disk(self.size_gib, iops=self.iops, mibps=self.mibps)


class StartFrom(StrEnum):
    """Who starts the command on a new machine."""

    SSH = "ssh"
    """The laptop, once the machine answers."""
    BOOT = "boot"
    """The machine itself: it continues if the laptop sleeps or dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What to run on: requirements, each of which narrows the offers.

    Attributes:
        provider: None means the default one.
        regions: in the order to try them; empty means the provider's default.
        disk_gib: size of the root disk; None means the offer's own.
        disk_iops: of the root disk, if they are sold separately; None: a sensible value (core/values/disk.py).
        disk_mibps: its throughput in MiB a second, likewise.
        volumes: data volumes; an existing volume pins the zone.
        max_usd_per_hour: dearer offers are left out, and a spot machine is given up above this price.
        usd_per_hour: a price for rehearsals; only the local provider accepts it.
        site: where in the user's own account the machine goes, and how to reach it.
    """

    provider: str | None = None
    regions: tuple[str, ...] = field(default=(), metadata=_FORGOTTEN)
    zone: str | None = field(default=None, metadata=_FORGOTTEN)
    instance_type: str | None = field(default=None, metadata=_FORGOTTEN)
    accelerators: Accelerators | None = None
    image_id: str | None = field(default=None, metadata=_FORGOTTEN)
    use_spot: bool = False
    disk_gib: int | None = None
    disk_iops: int | None = field(default=None, metadata=_FORGOTTEN)
    disk_mibps: int | None = field(default=None, metadata=_FORGOTTEN)
    volumes: tuple[VolumeSpec, ...] = field(default=(), metadata=_FORGOTTEN)
    max_usd_per_hour: Decimal | None = None
    usd_per_hour: Decimal | None = None
    site: Site = field(default_factory=Site)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMount:
    """A folder or file of the laptop or of a remote source, and where the command finds it.

    Attributes:
        source: an absolute path on the laptop, or a URL that the machine fetches (`s3://`, `https://`, `git+https://`,
            `hf://`, `kaggle://`).
        target: a path relative to the command's working folder.
        follows: folders outside the source that links may lead to; the content is sent instead of the link.
        written: the source as written in the job file, if that is a link to `source`; otherwise empty.
    """

    source: str
    target: str
    follows: tuple[str, ...] = ()
    written: str = ""

    @property
    def is_fetched(self) -> bool:
        """Tell whether the machine downloads the data itself, instead of receiving it from the laptop."""
        return "://" in self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the job's author expects of a run; compared with the deadline and with measurements.

    Attributes:
        duration: of the whole run.
        first_step: from the command's start to its first step; a silent command isn't reported as stalled before that.
    """

    duration: timedelta | None = None
    first_step: timedelta | None = None


_KEYS = {"time_limit": "deadline"}
"""Names of fields in the ledger and in `--json`, where they differ from the Python name: as in the job file."""


class Job(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS):
    """What to run and on what: a job file merged with one of its modes.

    Attributes:
        path: the job file, absolute; empty for a plain machine without a job.
        mode: the mode's name; empty if none was chosen.
        workdir: the folder of code to send, absolute; None to send none.
        envs: variables for setup and run, written in the job file or in a flag.
        secrets: names only; the values are read from the laptop's environment when they are sent.
        inherited: names of variables whose values come from the laptop (`null` under `envs`); handled like secrets.
        setup: a shell script, run once before the first start on a machine with this code.
        run: the shell script to supervise; empty for a plain machine.
        resume: the script to run instead if there is something to resume from; empty for the same one.
        resume_args: appended to `run` in that case; empty for nothing. A job has either these or `resume`, or none.
        sudo: setup and run may become root on a cloud machine.
        outputs: folders with results, relative to the working folder; they outlive a change of code.
        checkpoints: the folder, relative to the working folder, to which the command writes its checkpoints, for
            commands that don't read KEDGE_CHECKPOINT_DIR; otherwise empty.
        left_behind_bytes: how much to keep of files written outside of the outputs; None for the usual limit.
        time_limit: how long each machine may live, from its creation.
        budget_usd: the limit of the worst case; None for no limit.
        start: who starts the command on a new machine.
        recover: recover its runs, unless a flag says otherwise.
        bundled_trainer: the run command is kedge's own trainer, which is sent with the code.
        sites: for each provider, where in the user's own account machines go.
    """

    name: str
    path: str = ""
    mode: str = ""
    workdir: str | None = None
    num_nodes: int = 1
    resources: Resources = msgspec.field(default_factory=Resources)
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
    time_limit: timedelta = DEFAULT_TIME_LIMIT
    budget_usd: Decimal | None = None
    supervisor: SupervisorSpec = msgspec.field(default_factory=SupervisorSpec)
    start: StartFrom = StartFrom.SSH
    recover: bool = False
    expect: Expect = msgspec.field(default_factory=Expect)
    bundled_trainer: bool = False
    sites: tuple[tuple[str, Site], ...] = ()

    def resources_at(self, provider: str, ssh_from: str = "") -> Resources:
        """Return the resources as requested from one provider; `ssh_from` is who may reach its machines."""
        site = dict(self.sites).get(provider, Site())
        return replace(self.resources, site=replace(site, ssh_from=ssh_from))

    @property
    def later_run(self) -> str:
        """The script to run instead of `run` if there is something to resume from; empty for the same one."""
        return f"{self.run.rstrip()} {self.resume_args}" if self.resume_args else self.resume

    @property
    def from_shell(self) -> tuple[str, ...]:
        """Names of all variables whose values come from the launching shell and are never written down."""
        return (*self.secrets, *self.inherited)

    def is_on_volume(self, mount: DataMount) -> bool:
        """Tell whether a mount lies within a data volume."""
        return any(mount.target.startswith(f"{volume.target}/") for volume in self.resources.volumes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything that a launch needs to know before it observes the world.

    Attributes:
        run_id: created once, when the launch begins; it outlives machines.
        provider: the chosen one.
        folder: where the launch was run; commands given there mean this run.
        results: where the results go.
        job_digest: hash of the job file; tells whether the file has changed since.
        keep: leave the machine running until its deadline after the command has ended.
        recover: replace a machine that was lost, by the launching command or by `recover`.
        until: the one deadline of all machines of a recovered run; None for a run that isn't recovered.
        ssh_from: who may reach its machines over SSH, as CIDR; empty for the current address of the acting computer.
        without_reaper: rent machines although only a person can end the bill of a forgotten one.
        python: the Python of this computer on which the job's environment is built; None on clouds, and if the run has
            no command.
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
    without_reaper: bool = False
    python: JobPython | None = None

    @property
    def resources(self) -> Resources:
        """The resources as requested from the run's provider."""
        return self.job.resources_at(self.provider, self.ssh_from)
