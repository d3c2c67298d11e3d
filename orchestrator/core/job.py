"""The job, its parts, and the frozen launch specification made from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec

from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Expect, OnFailure, SupervisorSpec, Task
from orchestrator.core.values.disk import Disk, plan_disk
from orchestrator.core.values.interpreter import JobPython
from orchestrator.core.values.site import Site

DEFAULT_TIME_LIMIT = timedelta(hours=1)

OF_A_PROVIDER = "of a provider"
"""Metadata key of fields that have a meaning at one provider only; they are reset if another provider is chosen."""
_FORGOTTEN = {OF_A_PROVIDER: True}


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
        num_nodes: how many machines, all from one offer; `Job.resources_at` fills it in.
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
    num_nodes: int = 1


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


_KEYS = {"time_limit": "deadline"}
"""Names of fields in the ledger and in `--json`, where they differ from the Python name: as in the job file."""


class Job(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS):
    """What to run and on what: a job file merged with one of its modes.

    Attributes:
        path: the job file, absolute; empty for a plain machine without a job.
        mode: the mode's name; empty if none was chosen.
        mode_arguments: the values that followed it on the command line.
        workdir: the folder of code to send, absolute; None to send none.
        num_nodes: how many machines the run has; they are rented together, or not at all.
        elastic: with how many machines, at least and at most, the command can go on; None: with all of them only.
        envs: variables for setup and run, written in the job file or in a flag.
        secrets: names only; the values are read from the laptop's environment when they are sent.
        inherited: names of variables whose values come from the laptop (`null` under `envs`); handled like secrets.
        checks: the argv of each check of the data on this computer before a launch.
        setup: a shell script, run once before the first start on a machine with this code.
        setup_inputs: paths of the code, relative to it, whose change repeats `setup`; empty for the usual ones.
        tasks: the commands; empty for a plain machine.
        on_failure: what happens to the other tasks when one has failed for good.
        sudo: setup and tasks may become root on a cloud machine.
        left_behind_bytes: how much to keep of files written outside of the outputs; None for the usual limit.
        time_limit: how long each machine may live, from its creation.
        budget_usd: the limit of the worst case; None for no limit.
        supervisor: the default of its tasks; its kind is the kind of all of them.
        start: who starts the command on a new machine.
        recover: recover its runs, unless a flag says otherwise.
        expect: its duration is that of the whole run.
        bundled_trainer: a task runs kedge's own trainer, which is sent with the code.
        sites: for each provider, where in the user's own account machines go.
    """

    name: str
    path: str = ""
    mode: str = ""
    mode_arguments: tuple[str, ...] = ()
    workdir: str | None = None
    num_nodes: int = 1
    elastic: tuple[int, int] | None = None
    resources: Resources = msgspec.field(default_factory=Resources)
    envs: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    inherited: tuple[str, ...] = ()
    data: tuple[DataMount, ...] = ()
    checks: tuple[tuple[str, ...], ...] = ()
    setup: str = ""
    setup_inputs: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    on_failure: OnFailure = OnFailure.GO_ON
    sudo: bool = False
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
        return replace(self.resources, site=replace(site, ssh_from=ssh_from), num_nodes=self.num_nodes)

    @property
    def grace(self) -> timedelta:
        """How long its tasks may take together to checkpoint and exit."""
        return max((task.supervisor.grace for task in self.tasks), default=self.supervisor.grace)

    @property
    def from_shell(self) -> tuple[str, ...]:
        """Names of all variables whose values come from the launching shell and are never written down."""
        return (*self.secrets, *self.inherited)

    def is_on_volume(self, mount: DataMount) -> bool:
        """Tell whether a mount lies within a data volume."""
        return any(mount.target.startswith(f"{volume.target}/") for volume in self.resources.volumes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierMode:
    """A mode that a run has left for another one.

    Attributes:
        arguments: the values that followed its name.
        envs: the job's variables in it.
        tasks: the names of its tasks.
        output_patterns: the wildcards in its outputs, as paths in the results.
        outcome: its last known state, such as `succeeded`; empty if it never started.
        seconds: how long machines were billed for it.
        usd: what they cost in that time.
        took_seconds: how long the run has had a machine until the mode's command ended, however many machines there
            were; None in a ledger of an earlier version.
    """

    mode: str = ""
    arguments: tuple[str, ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    tasks: tuple[str, ...] = ()
    output_patterns: tuple[str, ...] = ()
    outcome: str = ""
    seconds: float = 0.0
    usd: Decimal = Decimal(0)
    took_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything that a launch needs to know before it observes the world.

    Attributes:
        run_id: created once, when the launch begins; it outlives machines.
        provider: the chosen one.
        job: in the present mode.
        earlier: the modes that the run has left, in their order.
        later: the job in each of the modes that follow; the machine starts them by itself.
        mode_since: when the present mode was chosen; None for a run's first one.
        continues: the present mode began from the newest checkpoint of the one before.
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
    earlier: tuple[EarlierMode, ...] = ()
    later: tuple[Job, ...] = ()
    mode_since: datetime | None = None
    continues: bool = False

    @property
    def sequence(self) -> int:
        """How many modes the run has had before the present one."""
        return len(self.earlier)

    @property
    def from_shell(self) -> tuple[str, ...]:
        """Names of all variables whose values come from the shell, in the present mode and in those that follow."""
        return tuple(dict.fromkeys(name for job in (self.job, *self.later) for name in job.from_shell))

    @property
    def resources(self) -> Resources:
        """The resources as requested from the run's provider."""
        return self.job.resources_at(self.provider, self.ssh_from)
