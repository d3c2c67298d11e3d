"""What a machine says of itself: the JSON that the agent prints, parsed.

The agent writes the same names in orchestrator/agent/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from orchestrator.core.decoding import (
    Count,
    ExitCode,
    Instant,
    Name,
    Path,
    Quantity,
    Size,
    Text,
    clip,
    decode,
    nonsense,
    require_bounded,
)
from orchestrator.core.tree import is_tree_path

SPOT_NOTICE = "spot notice"
"""Why a command was stopped whose machine is about to be taken away: it is no operator's stop."""
DEADLINE = "deadline"
"""Why one was stopped whose machine's time is over."""


BURN_IN = "burn-in"
"""The phase of a boot in which every GPU is tried."""

_DEAREST_USD_PER_HOUR = 1_000_000
_HOST_KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{1,4096}={0,2}(?: [ -~]{0,255})?")


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
    attempt: Count = 0
    exit_code: ExitCode | None = None
    reason: Text = ""
    since: Instant = 0.0
    started: Instant = 0.0
    supervisor: Name = ""

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

    index: Count
    name: Name = ""
    use_percent: Quantity | None = None
    memory_used_mib: Quantity | None = None
    memory_total_mib: Quantity | None = None
    temperature_c: Quantity | None = None
    power_w: Quantity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The machine's load at one instant.

    Attributes:
        time: Unix seconds.
        cpu_percent: of all cores together, 0 to 100.
    """

    time: Instant
    cpu_percent: Quantity
    memory_used_mib: Quantity
    memory_total_mib: Quantity
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is complete.

    Attributes:
        name: of the file or folder in KEDGE_CHECKPOINT_DIR.
        written: Unix seconds.
    """

    name: Name
    bytes: Size
    written: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """The last time that everything was copied to the object store.

    Attributes:
        time: Unix seconds.
        checkpoint: the newest one that is there.
        error: why the last try failed; empty when it did not.
    """

    time: Instant = 0.0
    checkpoint: Name = ""
    error: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """An attempt that was to go on and seems to have begun anew: its first checkpoint is less far than the last one.

    Attributes:
        name: of its first checkpoint.
        had: the name of the last one before it.
        step: how far the first one is; None where that isn't known.
        had_step: how far the last one was, likewise.
        kept: the name of the one that is kept apart; empty for none.
    """

    name: Name
    had: Name
    step: Count | None
    had_step: Count | None
    bytes: Size
    had_bytes: Size
    kept: Name = ""

    def __str__(self) -> str:
        """Say what was compared."""
        if self.step is not None and self.had_step is not None and self.step < self.had_step:
            return f"its first checkpoint, {self.name}, is of step {self.step}; there was one of step {self.had_step}"
        return f"its first checkpoint, {self.name}, has {self.bytes:,} bytes; the last one had {self.had_bytes:,}"


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
        anew: the command seems to have begun anew, though there was a checkpoint; None where it doesn't.
    """

    machine: Name
    run: Name
    now: Instant
    created: Instant
    deadline: Instant
    usd_per_hour: Name
    heartbeat: Instant = 0.0
    code: Name = ""
    log_bytes: Size = 0
    disk_free_bytes: Size = 0
    disk_total_bytes: Size = 0
    zstd: bool = False
    command: Command = field(default_factory=Command)
    progress: dict[str, Any] | None = None
    sample: Sample | None = None
    checkpoint: Checkpoint | None = None
    shipped: Shipped | None = None
    notice: Instant = 0.0
    advanced: Instant = 0.0
    anew: Anew | None = None

    def __post_init__(self) -> None:
        """Refuse what its fields' types can't.

        Raises:
            ValueError: its price is none, or somebody's status.json is beyond all measure.
        """
        require_bounded(self.progress)
        try:
            is_price = 0 <= Decimal(self.usd_per_hour) <= _DEAREST_USD_PER_HOUR
        except InvalidOperation:
            is_price = False
        if not is_price:
            raise ValueError("its price is no price")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootPhase:
    """One step of a boot, a line of `<root>/boot.jsonl`. Times are Unix seconds on the machine's clock.

    Attributes:
        phase: `agent`, `code` or `start`, in this order.
        error: what went wrong, in one line; empty where nothing did.
    """

    phase: Name
    began: Instant
    ended: Instant
    ok: bool
    error: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """`<root>/ready`: the boot is over, well or not. Phases that came after one that failed are missing."""

    ok: bool
    phases: tuple[BootPhase, ...] = ()


def parse_report(raw: bytes) -> MachineReport:
    """Parse what `kedge-agent report` printed.

    Raises:
        NonsenseError: it isn't a report.
    """
    return decode(raw, MachineReport, what="its report")


def parse_command(raw: bytes) -> Command:
    """Parse what `kedge-agent start`, `stop` and `kill` print.

    Raises:
        NonsenseError: it isn't a command's state.
    """
    return decode(raw, Command, what="its command's state")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowEvent:
    """One line of what `kedge-agent follow` prints: a piece of the log, or a report.

    Attributes:
        offset: how many bytes of the log were sent, this line included; where to go on after a cut.
        line: one line of the log without its end; None where this is a report.
    """

    offset: Size
    line: str | None = None
    report: MachineReport | None = None


def parse_follow_event(raw: bytes) -> FollowEvent:
    """Parse one line of the follow stream.

    Raises:
        NonsenseError: it isn't one.
    """
    return decode(raw, FollowEvent, what="its log's stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One of a run's results.

    Attributes:
        path: relative to the results, with forward slashes.
        link: what a link holds, which stays inside the results; empty for a file.
        left_out: why it is no result, though it lies there; empty for one.
    """

    path: Path
    bytes: Size
    sha256: Name
    link: Path = ""
    left_out: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that a command wrote beside its outputs.

    Attributes:
        path: relative to the working folder.
        left_out: why it isn't kept; empty where it is.
    """

    path: Path
    bytes: Size
    left_out: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What a command wrote beside its outputs, as of its last end: `left-behind.json` in its results.

    Attributes:
        kept: how many of the files are in `left-behind/`.
        named: the newest of them.
        empty: `outputs`, and the folder for checkpoints, that hold no file.
        is_whole: the working folder was looked at to its end.
    """

    files: Count = 0
    bytes: Size = 0
    kept: Count = 0
    kept_bytes: Size = 0
    named: tuple[LeftFile, ...] = ()
    empty: tuple[Path, ...] = ()
    is_whole: bool = True


def parse_left_behind(raw: bytes) -> LeftBehind:
    """Parse `left-behind.json`.

    Raises:
        NonsenseError: it is something else.
    """
    return decode(raw, LeftBehind, what="its list of what was left behind")


def parse_results(raw: bytes) -> tuple[ResultFile, ...]:
    """Parse what `kedge-agent manifest` printed.

    Raises:
        NonsenseError: it isn't a list of files of the results, each named once.
    """
    what = "its list of results"
    files = decode(raw, tuple[ResultFile, ...], what=what)
    if len({file.path for file in files}) < len(files):
        raise nonsense(what, "it names a file twice")
    outside = next((file.path for file in files if not is_tree_path(file.path)), None)
    if outside is not None:
        raise nonsense(what, f"{clip(outside)!r} leads out of the results")
    return files


def parse_ready(raw: bytes) -> Readiness:
    """Parse `<root>/ready`.

    Raises:
        NonsenseError: it is something else.
    """
    return decode(raw, Readiness, what="its readiness sentinel")


def parse_host_key(raw: bytes) -> str:
    """Parse the public host key that a machine has made itself: one key, since it is written into a file of keys.

    Raises:
        NonsenseError: it is something else.
    """
    found = _HOST_KEY.fullmatch(raw.decode("ascii", "replace").strip())
    if found is None:
        raise nonsense("its host key", f"it begins {raw[:80]!r}")
    return found[0]
