"""What a machine says of itself: the JSON that the agent prints, parsed.

The agent writes the same names in orchestrator/agent/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from orchestrator.core.errors import KedgeError

SPOT_NOTICE = "spot notice"
"""Why a command was stopped whose machine is about to be taken away: it is no operator's stop."""
DEADLINE = "deadline"
"""Why one was stopped whose machine's time is over."""


BURN_IN = "burn-in"
"""The phase of a boot in which every GPU is tried."""


class RunState(StrEnum):
    """Where the training command is in its life."""

    IDLE = "idle"
    SETTING_UP = "setting-up"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Nothing more happens by itself."""
        return self in (RunState.STOPPED, RunState.SUCCEEDED, RunState.FAILED)

    @property
    def is_live(self) -> bool:
        """The command is at work, or about to be."""
        return self in (RunState.SETTING_UP, RunState.RUNNING, RunState.RESTARTING, RunState.STOPPING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The training command's life.

    Attributes:
        attempt: 1 for the first start, one more for each restart.
        exit_code: of the last attempt that ended.
        reason: why it is in this state, for a person.
        since: when this state began, Unix seconds.
        started: when the first attempt began, Unix seconds; 0 before.
    """

    state: RunState = RunState.IDLE
    attempt: int = 0
    exit_code: int | None = None
    reason: str = ""
    since: float = 0.0
    started: float = 0.0
    supervisor: str = ""

    @property
    def was_reclaimed(self) -> bool:
        """It was stopped because its machine is taken away, not because anybody wanted it to."""
        return self.state is RunState.STOPPED and self.reason == SPOT_NOTICE

    @property
    def met_deadline(self) -> bool:
        """It was stopped because its machine's time is over: nobody can go on with it there."""
        return self.state is RunState.STOPPED and self.reason == DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, now. None: its tool doesn't tell, which says nothing of whether it is at work."""

    index: int
    name: str = ""
    use_percent: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The machine's load at one instant.

    Attributes:
        time: Unix seconds.
        cpu_percent: of all cores together, 0 to 100.
    """

    time: float
    cpu_percent: float
    memory_used_mib: float
    memory_total_mib: float
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is complete.

    Attributes:
        name: of the file or folder in KEDGE_CHECKPOINT_DIR.
        written: Unix seconds.
    """

    name: str
    bytes: int
    written: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """The last time that everything was copied to the object store.

    Attributes:
        time: Unix seconds.
        checkpoint: the newest one that is there.
        error: why the last try failed; empty when it did not.
    """

    time: float = 0.0
    checkpoint: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """Everything that a machine says of itself, at one instant. Times are Unix seconds on its clock.

    Attributes:
        heartbeat: when the agent's watch last went round; old means that it is dead.
        usd_per_hour: a decimal number as text.
        code: the content hash of the code in place; empty for none.
        progress: the command's own status.json, whatever it holds; None without one.
        notice: when the machine will be taken away; 0 while nobody has said so.
        advanced: when the command last showed that it goes on: its log, its status.json or a checkpoint; 0 before.
    """

    machine: str
    run: str
    now: float
    created: float
    deadline: float
    usd_per_hour: str
    heartbeat: float = 0.0
    code: str = ""
    log_bytes: int = 0
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    zstd: bool = False
    command: Command = field(default_factory=Command)
    progress: dict[str, Any] | None = None
    sample: Sample | None = None
    checkpoint: Checkpoint | None = None
    shipped: Shipped | None = None
    notice: float = 0.0
    advanced: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BootPhase:
    """One step of a boot, a line of `<root>/boot.jsonl`. Times are Unix seconds on the machine's clock.

    Attributes:
        phase: `agent`, `code` or `start`, in this order.
        error: what went wrong, in one line; empty where nothing did.
    """

    phase: str
    began: float
    ended: float
    ok: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`<root>/ready`: the boot is over, well or not. Phases that came after one that failed are missing."""

    ok: bool
    phases: tuple[BootPhase, ...] = ()


def parse_report(raw: bytes) -> MachineReport:
    """Parse what `kedge-agent report` printed.

    Raises:
        KedgeError: it isn't a report.
    """
    try:
        return msgspec.json.decode(raw, type=MachineReport)
    except msgspec.MsgspecError as err:
        raise KedgeError(
            "the machine's report can't be read",
            why=f"{err}; it begins {raw[:80]!r}",
            fix="look at the machine with `kedge ssh`, or end it with `kedge teardown`",
        ) from err


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowEvent:
    """One line of what `kedge-agent follow` prints: a piece of the log, or a report.

    Attributes:
        offset: how many bytes of the log were sent, this line included; where to go on after a cut.
        line: one line of the log without its end; None where this is a report.
    """

    offset: int
    line: str | None = None
    report: MachineReport | None = None


def parse_follow_event(raw: bytes) -> FollowEvent:
    """Parse one line of the follow stream.

    Raises:
        KedgeError: it isn't one.
    """
    try:
        return msgspec.json.decode(raw, type=FollowEvent)
    except msgspec.MsgspecError as err:
        raise KedgeError("the machine's log stream can't be read", why=f"{err}: {raw[:80]!r}") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One of a run's results.

    Attributes:
        path: relative to the results, with forward slashes.
        link: what a link holds, which stays inside the results; empty for a file.
        left_out: why it is no result, though it lies there; empty for one.
    """

    path: str
    bytes: int
    sha256: str
    link: str = ""
    left_out: str = ""


def parse_ready(raw: bytes) -> Readiness:
    """Parse `<root>/ready`.

    Raises:
        KedgeError: it is something else.
    """
    try:
        return msgspec.json.decode(raw, type=Readiness)
    except msgspec.MsgspecError as err:
        raise KedgeError("the machine's readiness sentinel can't be read", why=str(err)) from err
