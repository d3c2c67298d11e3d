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
SETTING_UP = "setting-up"
RUNNING = "running"
RESTARTING = "restarting"
STOPPING = "stopping"
STOPPED = "stopped"
SUCCEEDED = "succeeded"
FAILED = "failed"

SPOT_NOTICE = "spot notice"
DEADLINE = "deadline"
BURN_IN = "burn-in"
TORCH_WHEEL = "KEDGE_TORCH_WHEEL"
AWS = "aws"
LOCAL = "local"

LEFT_BEHIND_BYTES = 1_000_000_000
LEFT_BEHIND_OVER_SSH_BYTES = 100_000_000

LATEST = 16_725_225_600.0
"""The latest time that the laptop accepts, in Unix seconds (core/protocol/decoding.py)."""
DEPTH = 16
"""The deepest nesting of a status.json that the laptop accepts."""

LIVE = frozenset({SETTING_UP, RUNNING, RESTARTING, STOPPING})
OVER = frozenset({STOPPED, SUCCEEDED, FAILED})


class DataSource(Record):
    """Data that the machine fetches by itself; the laptop's wire.py documents each field."""

    source: str
    target: str
    index: str = ""


class RunConfig(Record):
    """What is needed to run a command; the laptop's wire.py documents each field."""

    run: str
    job: str
    mode: str
    command: str
    setup: str
    supervisor: str
    restarts: int
    restart_after: float
    grace: float
    envs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    data: tuple[str, ...] = ()
    gpus_per_node: int = 0
    unit: str = ""
    python_path: tuple[str, ...] = ()
    keep: bool = False
    sources: tuple[DataSource, ...] = ()
    python: str = ""
    left_behind: int | None = None
    resume: str = ""

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


class BootOrder(Record):
    """What a machine does by itself at boot; the laptop's wire.py documents each field."""

    code: str = ""
    code_sha256: str = ""
    start_sha256: str = ""
    gpus: int = 0
    torch_wheel: str = ""


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


class FollowEvent(Record):
    """One line of `follow`'s output: a part of the log, or a report."""

    offset: int
    line: str | None = None
    report: MachineReport | None = None


class ResultFile(Record):
    """One of a run's results; the laptop's results.py documents each field."""

    path: str
    bytes: int
    sha256: str
    link: str = ""
    left_out: str = ""


class LeftFile(Record):
    """A file that a command wrote outside its outputs."""

    path: str
    bytes: int
    left_out: str = ""


class LeftBehind(Record):
    """The files that a command wrote outside its outputs; the laptop's results.py documents each field."""

    files: int = 0
    bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    named: tuple[LeftFile, ...] = ()
    empty: tuple[str, ...] = ()
    is_whole: bool = True


def instant(seconds: float) -> float:
    """Clamp a time to what the laptop accepts: a file may have any time, because programs can set it."""
    return min(max(0.0, float(seconds)), LATEST)


def key_of(name: str) -> str:
    """Return a field's JSON key, which doesn't change with the field's name."""
    return {"deadline_at": "deadline", "upload": "shipped"}.get(name, name)


def to_json(record: Record) -> dict[str, Any]:
    """Turn a record, and the records in it, into dicts for json.dumps."""
    return {key_of(name): _plain(getattr(record, name)) for name in record.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value
