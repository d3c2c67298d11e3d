"""The actions that a plan consists of, as a closed union. `plan` prints the same objects that `apply` executes.

An action names its machine by an id that exists before the machine does, so that later actions can refer to a
machine that an earlier one creates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from orchestrator.core.job import DataMount, SupervisorKind
from orchestrator.core.offer import Offer
from orchestrator.core.values.units import format_bytes, format_duration, format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMachine:
    """Rent a machine: the first of these offers that is available."""

    machine_id: str
    offers: tuple[Offer, ...]
    lifetime: timedelta
    starts: bool = False
    """The machine takes the staged code and starts the command by itself."""
    ssh_from: str = ""
    """Who may reach it over SSH, as CIDR; empty if its provider or the user's own network decides that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCode:
    """Upload the code and the command's configuration to the object store, for a machine that starts by itself.

    Attributes:
        gpus: how many the machine will have.
    """

    machine_id: str
    source: str
    files: int
    bytes: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageData:
    """Upload a data folder to the object store, for a machine that starts by itself and downloads it from there."""

    machine_id: str
    mount: DataMount


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMachine:
    """Wait until the machine has booted and its agent answers."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCode:
    """Bring the code on the machine to the state on the laptop."""

    machine_id: str
    source: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendData:
    """Bring a data folder to the machine.

    Attributes:
        delete: remove files on the machine that the laptop doesn't have.
    """

    machine_id: str
    mount: DataMount
    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand:
    """Ask the command to checkpoint and exit, and wait until it has.

    Attributes:
        restarts: the command is started again afterwards, so followers of its log keep following.
        now: kill it instead, without a checkpoint.
    """

    machine_id: str
    restarts: bool = False
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """Start the command under its supervisor; on a new machine it resumes from the newest checkpoint."""

    machine_id: str
    supervisor: SupervisorKind
    resumes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowCommand:
    """Show the log until the command has ended."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResults:
    """Copy the run's results to the laptop and verify the copy."""

    machine_id: str
    destination: str


STILL_AT_WORK = "the command is still at work"
"""Detail of an intent: this copy of the results was made while the command was running, so it isn't the final one."""

LAST_UPLOAD = timedelta(seconds=45)
"""How long to wait for a machine's last upload, which `resume` needs, if nobody waits for its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyMachine:
    """Destroy the machine, and wait until the provider confirms that it is gone.

    Attributes:
        leaves_results: wait only briefly for results that aren't in the object store yet, because nobody needs them.
        is_ending: it was ending already, and the run continues on another machine: nothing waits for its results, nor
            long for its end if its provider has taken it away.
    """

    machine_id: str
    leaves_results: bool = False
    is_ending: bool = False


Action = (
    StageCode
    | StageData
    | CreateMachine
    | AwaitMachine
    | SendCode
    | SendData
    | StopCommand
    | StartCommand
    | FollowCommand
    | FetchResults
    | DestroyMachine
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRun:
    """Remove what the provider has created for a run besides machines, once the run has no machine left.

    No plan contains it: closing a run releases it.
    """

    run_id: str


Journaled = Action | ReleaseRun
"""Every action that changes the world, and therefore gets an intent in the ledger."""


def sign(action: Action) -> str:
    """Return `+` for an action that creates, `~` for one that changes, `-` for one that destroys."""
    match action:
        case CreateMachine() | StageCode() | StageData():
            return "+"
        case DestroyMachine():
            return "-"
        case _:
            return "~"


def describe(action: Action) -> str:
    """Describe the action in one line, with its details."""
    details = _details(action)
    return f"{title(action)}: {details}" if details else title(action)


def title(action: Action) -> str:  # noqa: C901, PLR0911 - one line for each kind of action
    """Describe the action in a few words; `describe` begins with the same words."""
    match action:
        case StageCode():
            return "stage code in the object store"
        case StageData():
            return f"stage data for {action.mount.target} in the object store"
        case CreateMachine():
            return f"create machine {action.machine_id}"
        case AwaitMachine():
            return "wait until it is ready"
        case SendCode():
            return "send code"
        case SendData():
            return f"send data to {action.mount.target}"
        case StopCommand():
            return "kill the command" if action.now else "stop the command"
        case StartCommand():
            return "go on from the newest checkpoint" if action.resumes else "start the command"
        case FollowCommand():
            return "follow the command until it is over"
        case FetchResults():
            return "fetch results and verify the copy"
        case DestroyMachine():
            return f"destroy machine {action.machine_id}"
        case _:
            assert_never(action)


def _details(action: Action) -> str:  # noqa: C901, PLR0911 - one line for each kind of action
    match action:
        case CreateMachine():
            starts = ", starts the command by itself" if action.starts else ""
            return f"{_describe_offers(action.offers)}{starts}, gone after {format_duration(action.lifetime)}"
        case SendCode() | StageCode():
            return f"{action.source} ({action.files:,} files, {format_bytes(action.bytes)})"
        case StageData():
            return _describe_source(action.mount)
        case SendData():
            return _describe_source(action.mount) + (", removing what isn't here" if action.delete else "")
        case StopCommand():
            return "at once, without a checkpoint" if action.now else "it checkpoints, then exits"
        case StartCommand():
            return str(action.supervisor)
        case FollowCommand():
            return "a run that is stopped keeps its machine"
        case FetchResults():
            return action.destination
        case DestroyMachine(is_ending=True):
            return "it is ending already"
        case DestroyMachine():
            soon = f"after at most {format_duration(LAST_UPLOAD)} for its last upload"
            return soon if action.leaves_results else "once its results are safe"
        case AwaitMachine():
            return ""
        case _:
            assert_never(action)


def _describe_source(mount: DataMount) -> str:
    through = f" (which the link {mount.written} leads to)" if mount.written else ""
    follows = f", with what its links lead to in {', '.join(mount.follows)}" if mount.follows else ""
    return mount.source + through + follows


def _describe_offers(offers: tuple[Offer, ...]) -> str:
    first = offers[0]
    name = first.place if first.instance_type == first.provider else f"{first.place} {first.instance_type}"
    gpus = f", {first.accelerators}" if first.accelerators else ""
    others = f" (or {_count(len(offers) - 1)})" if len(offers) > 1 else ""
    market = " spot" if first.spot else ""
    disks = f" + {format_usd(first.disk_usd_per_hour)}/h disks and address" if first.disk_usd_per_hour else ""
    once = f" + {format_usd(first.once_usd)} once for filling volumes" if first.once_usd else ""
    return f"{name}{gpus}{market} at {format_usd(first.usd_per_hour)}/h{disks}{once}{others}"


def _count(others: int) -> str:
    return "1 other offer" if others == 1 else f"{others} other offers"
