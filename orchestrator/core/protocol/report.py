"""Parses the report of a machine: the JSON that the agent prints about the machine and its command.

The agent writes the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import msgspec

from orchestrator.core.protocol.decoding import (
    DEADLINE_KEY,
    Count,
    ExitCode,
    Instant,
    Name,
    Size,
    TaskName,
    Text,
    decode,
    require_bounded,
)
from orchestrator.core.protocol.sample import Sample

SPOT_NOTICE = "spot notice"
"""The reason for stopping a command because its machine is being reclaimed, which isn't an operator's stop."""
DEADLINE = "deadline"
"""The reason for stopping a command because its machine's deadline has passed."""
LOST_PEER = "lost a machine"
"""How the reason begins for the failure of a command whose other machines were lost, and didn't come back."""


_DEAREST_USD_PER_HOUR = 1_000_000


class RunState(StrEnum):
    """The life cycle of the training command."""

    IDLE = "idle"
    WAITING = "waiting"
    """For another task to succeed."""
    SETTING_UP = "setting-up"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Tell whether the command has ended and won't start again by itself."""
        return self in (RunState.STOPPED, RunState.SUCCEEDED, RunState.FAILED)

    @property
    def is_live(self) -> bool:
        """Tell whether the command is running, or about to be."""
        return self is not RunState.IDLE and not self.is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The state of the training command.

    Attributes:
        attempt: 1 for the first start, one more for each restart.
        exit_code: of the last attempt that ended.
        reason: why it is in this state, for people.
        since: when this state began, Unix seconds.
        started: when the first attempt began, Unix seconds; 0 before.
    """

    state: RunState = RunState.IDLE
    attempt: Count = 0
    exit_code: ExitCode | None = None
    reason: Text = ""
    since: Instant = 0.0
    started: Instant = 0.0
    supervisor: Name = ""

    @property
    def was_reclaimed(self) -> bool:
        """Tell whether it was stopped because its machine is being reclaimed, not because somebody asked for it."""
        return self.state is RunState.STOPPED and self.reason == SPOT_NOTICE

    @property
    def lost_peer(self) -> bool:
        """Tell whether it has failed because another machine of its run was lost."""
        return self.state is RunState.FAILED and self.reason.startswith(LOST_PEER)

    @property
    def met_deadline(self) -> bool:
        """Tell whether it was stopped because its machine's deadline has passed: it can't continue there."""
        return self.state is RunState.STOPPED and self.reason == DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        name: of the file or folder in KEDGE_CHECKPOINT_DIR.
        written: Unix seconds.
    """

    name: Name
    bytes: Size
    written: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadState:
    """The last upload of everything to the object store.

    Attributes:
        time: Unix seconds.
        checkpoint: the newest one in the store.
        error: why the last attempt failed; empty if it succeeded.
    """

    time: Instant = 0.0
    checkpoint: Name = ""
    error: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStart:
    """An attempt that should have resumed but seems to have started from scratch: its first checkpoint is too early.

    Attributes:
        name: of its first checkpoint.
        had: the name of the last checkpoint before it.
        step: the step of the first one; None if unknown.
        had_step: the step of the last one; None if unknown.
        kept: the name of the older checkpoint that was moved aside; empty for none.
    """

    name: Name
    had: Name
    step: Count | None
    had_step: Count | None
    bytes: Size
    had_bytes: Size
    kept: Name = ""

    def __str__(self) -> str:
        """Describe what was compared."""
        if self.step is not None and self.had_step is not None and self.step < self.had_step:
            return f"its first checkpoint, {self.name}, is of step {self.step}; there was one of step {self.had_step}"
        return f"its first checkpoint, {self.name}, has {self.bytes:,} bytes; the last one had {self.had_bytes:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The state of one task at one instant. Times are Unix seconds on the machine's clock.

    Attributes:
        progress: the content of the command's own status.json; None if there is none.
        advanced: when the command last showed progress in its log, its status.json or a checkpoint; 0 if it hasn't yet.
        anew: the command seems to have started from scratch, although there was a checkpoint; None if it doesn't.
        progress_at: when status.json was last written; 0 if it doesn't exist, or for an agent of an earlier version.
    """

    command: Command = field(default_factory=Command)
    log_bytes: Size = 0
    progress: dict[str, Any] | None = None
    checkpoint: Checkpoint | None = None
    advanced: Instant = 0.0
    anew: FreshStart | None = None
    progress_at: Instant = 0.0

    def __post_init__(self) -> None:
        """Refuse a status.json that holds something too large.

        Raises:
            ValueError: it does.
        """
        require_bounded(self.progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeReport:
    """A mode that the run has left.

    Attributes:
        sequence: how many modes the run had had before it.
        command: the last state of all its tasks together.
    """

    sequence: Count
    mode: Name = ""
    command: Command = field(default_factory=Command)


class MachineReport(msgspec.Struct, frozen=True, kw_only=True, rename={**DEADLINE_KEY, "upload": "shipped"}):
    """The state of a machine at one instant. Times are Unix seconds on its clock.

    Attributes:
        heartbeat: when the agent's watch last completed a cycle; an old one means that the watch is dead.
        usd_per_hour: a decimal number as text.
        code: the content hash of the code on the machine; empty for none.
        command: the state of all tasks together: live until all are over, and failed if one of them has failed.
        log_bytes: of the machine's own log, which is also that of a task without a name.
        progress: of the task without a name, as `checkpoint`, `advanced`, `anew` and `progress_at`; see TaskReport.
        notice: when the machine will be reclaimed; 0 if no notice has been given.
        tasks: the tasks with names; see `each_task`.
        sequence: how many modes the run has had before its present one, whose tasks these are.
        mode: the present one.
        earlier: the modes before it, which this machine or an earlier one has left.
        extends: its deadline can be moved; False for an agent of an earlier version.
    """

    machine: Name
    run: Name
    now: Instant
    created: Instant
    deadline_at: Instant
    usd_per_hour: Name
    heartbeat: Instant = 0.0
    code: Name = ""
    log_bytes: Size = 0
    disk_free_bytes: Size = 0
    disk_total_bytes: Size = 0
    zstd: bool = False
    command: Command = msgspec.field(default_factory=Command)
    progress: dict[str, Any] | None = None
    sample: Sample | None = None
    checkpoint: Checkpoint | None = None
    upload: UploadState | None = None
    notice: Instant = 0.0
    advanced: Instant = 0.0
    anew: FreshStart | None = None
    tasks: dict[TaskName, TaskReport] = msgspec.field(default_factory=dict)
    sequence: Count = 0
    mode: Name = ""
    earlier: tuple[ModeReport, ...] = ()
    extends: bool = False
    progress_at: Instant = 0.0

    @property
    def each_task(self) -> dict[str, TaskReport]:
        """All tasks by their names; the only task of most runs has none."""
        return self.tasks or {
            "": TaskReport(
                command=self.command,
                log_bytes=self.log_bytes,
                progress=self.progress,
                checkpoint=self.checkpoint,
                advanced=self.advanced,
                anew=self.anew,
                progress_at=self.progress_at,
            )
        }

    def __post_init__(self) -> None:
        """Check what the fields' types can't.

        Raises:
            ValueError: its price is invalid, or status.json holds something that is too large.
        """
        require_bounded(self.progress)
        try:
            is_price = 0 <= Decimal(self.usd_per_hour) <= _DEAREST_USD_PER_HOUR
        except InvalidOperation:
            is_price = False
        if not is_price:
            raise ValueError("its price is not an amount of money")


def parse_report(raw: bytes) -> MachineReport:
    """Parse the output of `kedge-agent report`.

    Raises:
        NonsenseError: it isn't a report.
    """
    return decode(raw, MachineReport, what="its report")


def parse_command(raw: bytes) -> Command:
    """Parse the output of `kedge-agent start`, `stop` and `kill`.

    Raises:
        NonsenseError: it isn't a command's state.
    """
    return decode(raw, Command, what="its command's state")
