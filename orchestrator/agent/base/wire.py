"""The wire format between agent and laptop, the agent's side.

The laptop's side is orchestrator/core/protocol/: wire, report, readiness and results; tests/contract/test_wire.py
compares them.
Both sides ignore unknown fields, so that one may be newer than the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .record import Record

IDLE = "idle"
WAITING = "waiting"
SETTING_UP = "setting-up"
RUNNING = "running"
RESTARTING = "restarting"
STOPPING = "stopping"
STOPPED = "stopped"
SUCCEEDED = "succeeded"
FAILED = "failed"

SPOT_NOTICE = "spot notice"
DEADLINE = "deadline"
LOST_PEER = "lost a machine"
BURN_IN = "burn-in"
GO_ON = "go-on"
STOP_ALL = "stop-all"
TORCH_WHEEL = "KEDGE_TORCH_WHEEL"
AWS = "aws"
LOCAL = "local"
RUN_SECRETS = "run-secrets.json"

LEFT_BEHIND_BYTES = 1_000_000_000
LEFT_BEHIND_OVER_SSH_BYTES = 100_000_000

DEPTH = 16
"""The deepest nesting of a status.json that the laptop accepts."""

LIVE = frozenset({WAITING, SETTING_UP, RUNNING, RESTARTING, STOPPING})
OVER = frozenset({STOPPED, SUCCEEDED, FAILED})


class DataSource(Record):
    """Data that the machine fetches by itself; the laptop's wire.py documents each field."""

    source: str
    target: str
    index: str = ""


class TaskConfig(Record):
    """One task of a run: a command, and what it gets; the laptop's wire.py documents each field."""

    name: str
    command: str
    supervisor: str
    restarts: int
    restart_after: float
    grace: float
    resume: str = ""
    unit: str = ""
    envs: Mapping[str, str] = {}
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    gpus: tuple[int, ...] | None = None
    cpus: int | None = None
    after: str = ""
    nodes: str = "all"
    port: int = 0


class RunConfig(Record):
    """What is needed to run a machine's tasks; the laptop's wire.py documents each field."""

    run: str
    job: str
    mode: str
    setup: str
    tasks: tuple[TaskConfig, ...]
    on_failure: str = GO_ON
    sequence: int = 0
    continues: str | None = None
    then: tuple[RunConfig, ...] = ()
    done: tuple[str, ...] = ()
    envs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    data: tuple[str, ...] = ()
    gpus_per_node: int = 0
    python_path: tuple[str, ...] = ()
    keep: bool = False
    sources: tuple[DataSource, ...] = ()
    python: str = ""
    left_behind: int | None = None
    setup_inputs: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    elastic: tuple[int, ...] | None = None
    modes_port: int = 0
    recovers: bool = False
    token: str = ""

    def task(self, name: str) -> TaskConfig | None:
        """Return the task of this name; None if there is none."""
        return next((task for task in self.tasks if task.name == name), None)

    def __repr__(self) -> str:
        return f"RunConfig(run={self.run!r})"


class MachineConfig(Record):
    """What is known about the machine from its creation; the laptop's wire.py documents each field."""

    machine: str
    run: str
    provider: str
    root: str
    created: float
    deadline_at: float
    usd_per_hour: str
    store_url: str = ""
    end_command: tuple[str, ...] = ()
    sockets: str = ""
    path: tuple[str, ...] = ()
    sample_every: float = 5.0
    ship_every: float = 30.0
    linger: float = 120.0
    metadata: str = ""
    rank: int = 0
    arm_command: tuple[str, ...] = ()
    margin: float = 0.0

    @property
    def can_extend(self) -> bool:
        """Whether the machine can move its deadline; the init of a local one reads it elsewhere."""
        return bool(self.arm_command) or self.provider == LOCAL


class BootOrder(Record):
    """What a machine does by itself at boot; the laptop's wire.py documents each field."""

    code: str = ""
    code_sha256: str = ""
    start_sha256: str = ""
    gpus: int = 0
    torch_wheel: str = ""
    secrets: tuple[str, ...] = ()
    secrets_url: str = ""


class BootPhase(Record):
    """One step of a boot."""

    phase: str
    began: float
    ended: float
    ok: bool
    error: str = ""


class Readiness(Record):
    """The sentinel of a finished boot."""

    ok: bool
    phases: tuple[BootPhase, ...] = ()


class Command(Record):
    """The training command's state."""

    state: str = IDLE
    attempt: int = 0
    exit_code: int | None = None
    reason: str = ""
    since: float = 0.0
    started: float = 0.0
    supervisor: str = ""

    @property
    def is_live(self) -> bool:
        """Whether the command is running, or about to."""
        return self.state in LIVE

    @property
    def is_over(self) -> bool:
        """Whether the command has ended and won't restart by itself."""
        return self.state in OVER


class Gpu(Record):
    """One GPU's current load. None: the vendor's tool doesn't report it, so it is unknown, not idle."""

    index: int
    name: str = ""
    use_percent: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


class Sample(Record):
    """The machine's load at one point in time."""

    time: float
    cpu_percent: float
    memory_used_mib: float
    memory_total_mib: float
    gpus: tuple[Gpu, ...] = ()


class Checkpoint(Record):
    """A complete checkpoint."""

    name: str
    bytes: int
    written: float


class UploadState(Record):
    """The last complete upload to the object store."""

    time: float = 0.0
    checkpoint: str = ""
    error: str = ""


class FreshStart(Record):
    """An attempt that should have resumed but seems to have started over; the laptop's report.py has the fields."""

    name: str
    had: str
    step: int | None
    had_step: int | None
    bytes: int
    had_bytes: int
    kept: str = ""


class TaskReport(Record):
    """A task's status at one point in time."""

    command: Command = Command()
    log_bytes: int = 0
    progress: dict[str, Any] | None = None
    checkpoint: Checkpoint | dict[str, Any] | None = None
    advanced: float = 0.0
    anew: FreshStart | dict[str, Any] | None = None
    progress_at: float = 0.0


class ModeReport(Record):
    """A mode that the run has left."""

    sequence: int
    mode: str = ""
    command: Command = Command()


class MachineReport(Record):
    """A machine's full status at one point in time."""

    machine: str
    run: str
    now: float
    created: float
    deadline_at: float
    usd_per_hour: str
    heartbeat: float = 0.0
    code: str = ""
    log_bytes: int = 0
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    zstd: bool = False
    command: Command = Command()
    progress: dict[str, Any] | None = None
    sample: Sample | dict[str, Any] | None = None
    checkpoint: Checkpoint | dict[str, Any] | None = None
    upload: UploadState | dict[str, Any] | None = None
    notice: float = 0.0
    advanced: float = 0.0
    anew: FreshStart | dict[str, Any] | None = None
    tasks: Mapping[str, TaskReport] = {}
    sequence: int = 0
    mode: str = ""
    earlier: tuple[ModeReport, ...] = ()
    extends: bool = False
    progress_at: float = 0.0


class FollowEvent(Record):
    """One line of `follow`'s output: a part of a log, or a report; the laptop's report.py documents each field."""

    offset: int
    line: str | None = None
    report: MachineReport | None = None
    task: str = ""
