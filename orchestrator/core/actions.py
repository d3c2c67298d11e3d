"""What a plan is made of: a closed union. The same object is printed by `plan` and executed by `apply`.

An action names the machine by an id that exists before the machine does, so later actions can refer to what
earlier ones will make.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from orchestrator.core.job import DataMount, SupervisorKind
from orchestrator.core.offer import Offer
from orchestrator.core.units import format_bytes, format_duration, format_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMachine:
    """Rent a machine: the first of these offers that can be had."""

    machine_id: str
    offers: tuple[Offer, ...]
    lifetime: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMachine:
    """Wait until the machine has booted and its agent answers."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCode:
    """Bring the machine's code to the laptop's state."""

    machine_id: str
    source: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendData:
    """Bring a data folder to the machine."""

    machine_id: str
    mount: DataMount


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand:
    """Ask the command to checkpoint and exit, and wait for it."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """Start the command under its supervisor; on a new machine it goes on from the newest checkpoint."""

    machine_id: str
    supervisor: SupervisorKind
    resumes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowCommand:
    """Show the log until the command is over."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResults:
    """Copy the run's results home and verify the copy."""

    machine_id: str
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyMachine:
    """End the machine, and wait until the provider confirms that it is gone."""

    machine_id: str


Action = (
    CreateMachine
    | AwaitMachine
    | SendCode
    | SendData
    | StopCommand
    | StartCommand
    | FollowCommand
    | FetchResults
    | DestroyMachine
)


def sign(action: Action) -> str:
    """Return `+` for what is made, `~` for what is changed, `-` for what is destroyed."""
    match action:
        case CreateMachine():
            return "+"
        case DestroyMachine():
            return "-"
        case _:
            return "~"


def describe(action: Action) -> str:  # noqa: C901, PLR0911 - one line for each kind of action
    """Say in one line what the action does."""
    match action:
        case CreateMachine():
            lifetime = format_duration(action.lifetime)
            offers = _describe_offers(action.offers)
            return f"create machine {action.machine_id}: {offers}, gone after {lifetime}"
        case AwaitMachine():
            return f"wait until {action.machine_id} has booted"
        case SendCode():
            return f"send code: {action.source} ({action.files:,} files, {format_bytes(action.bytes)})"
        case SendData():
            return f"send data: {action.mount.source} -> {action.mount.target}"
        case StopCommand():
            return "stop the command: checkpoint, then exit"
        case StartCommand():
            start = "go on from the newest checkpoint" if action.resumes else "start the command"
            return f"{start} under {action.supervisor}"
        case FollowCommand():
            return "follow the command until it is over (a stopped run keeps its machine)"
        case FetchResults():
            return f"fetch results to {action.destination} and verify the copy"
        case DestroyMachine():
            return f"destroy machine {action.machine_id} and wait until it is gone"
        case _:
            assert_never(action)


def _describe_offers(offers: tuple[Offer, ...]) -> str:
    first = offers[0]
    gpus = f", {first.accelerators}" if first.accelerators else ""
    others = f" (or {len(offers) - 1} other offers)" if len(offers) > 1 else ""
    return f"{first.place} {first.instance_type}{gpus} at {format_usd(first.usd_per_hour)}/h{others}"
