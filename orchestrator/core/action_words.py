"""Describes actions in words, as plans and progress show them."""

from __future__ import annotations

from typing import assert_never

from orchestrator.core.actions import (
    LAST_UPLOAD,
    Action,
    AwaitMachine,
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    FetchResults,
    FollowCommand,
    SendCode,
    SendData,
    StageCode,
    StageData,
    StageSecrets,
    StartCommand,
    StopCommand,
)
from orchestrator.core.job import DataMount
from orchestrator.core.offer import Offer
from orchestrator.core.values.deadlines import describe_moves
from orchestrator.core.values.units import format_bytes, format_duration, format_usd


def sign(action: Action) -> str:
    """Return `+` for an action that creates, `~` for one that changes, `-` for one that destroys."""
    match action:
        case CreateMachine() | StageCode() | StageData() | StageSecrets():
            return "+"
        case DestroyMachine():
            return "-"
        case _:
            return "~"


def describe(action: Action) -> str:
    """Describe the action in one line, with its details."""
    details = _details(action)
    return f"{title(action)}: {details}" if details else title(action)


def title(action: Action) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each kind of action
    """Describe the action in a few words; `describe` begins with the same words."""
    match action:
        case StageCode():
            return "stage code in the object store"
        case StageData():
            return f"stage data for {action.mount.target} in the object store"
        case StageSecrets():
            return "store secrets that only the run's machines can read"
        case CreateMachine():
            ids = action.machine_ids
            return f"create {len(ids)} machines, {ids[0]} to {ids[-1]}" if action.others else f"create machine {ids[0]}"
        case AwaitMachine():
            return "wait until it is ready"
        case SendCode():
            return "send code"
        case SendData():
            return f"send data to {action.mount.target}"
        case StopCommand():
            return f"{'kill' if action.now else 'stop'} {_name_tasks(action.tasks)}"
        case StartCommand():
            return _title_of_start(action)
        case FollowCommand():
            return "follow the command until it is over"
        case FetchResults():
            named = f" of {_name_tasks(action.tasks)}" if action.tasks else ""
            only = f", only {', '.join(action.only)}," if action.only else ""
            return f"fetch results{named}{only} and verify the copy"
        case ExtendDeadline():
            return "move the deadline"
        case DestroyMachine():
            return f"destroy machine {action.machine_id}"
        case _:
            assert_never(action)


def _details(action: Action) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each kind of action
    match action:
        case CreateMachine():
            starts = ", starts the command by itself" if action.starts else ""
            starts += f" once this computer has sent it {', '.join(action.awaits)}" if action.awaits else ""
            together = ", all or none" if action.others else ""
            together += f", to complete {', '.join(action.joins)}" if action.joins else ""
            offers = _describe_offers(action.offers, len(action.machine_ids))
            return f"{offers}{together}{starts}, gone after {format_duration(action.lifetime)}"
        case SendCode() | StageCode():
            return f"{action.source} ({action.files:,} files, {format_bytes(action.bytes)})"
        case StageData():
            return _describe_source(action.mount)
        case StageSecrets():
            return f"{', '.join(action.names)} in {action.place}, deleted with the run"
        case SendData():
            return _describe_source(action.mount) + (", removing what isn't here" if action.delete else "")
        case StopCommand():
            exits = "it checkpoints, then exits" if len(action.tasks) < 2 else "they checkpoint, then exit"
            return "at once, without a checkpoint" if action.now else exits
        case StartCommand():
            return f"{action.supervisor}, results in {action.mode}/" if action.mode else str(action.supervisor)
        case FollowCommand():
            return "a run that is stopped keeps its machine"
        case FetchResults():
            return action.destination
        case ExtendDeadline():
            return describe_moves(action.machines, action.run)
        case DestroyMachine(is_ending=True):
            return "it is ending already"
        case DestroyMachine():
            soon = f"after at most {format_duration(LAST_UPLOAD)} for its last upload"
            return soon if action.leaves_results else "once its results are safe"
        case AwaitMachine():
            return ""
        case _:
            assert_never(action)


def _name_tasks(names: tuple[str, ...]) -> str:
    if not names:
        return "the command"
    return f"{'task' if len(names) == 1 else 'tasks'} {', '.join(names)}"


def _title_of_start(action: StartCommand) -> str:
    named = _name_tasks(action.tasks)
    if not action.resumes:
        return f"start {named}{' from the newest checkpoint of the mode before' if action.continues else ''}"
    return f"go on with {named} from the newest checkpoint" if action.tasks else "go on from the newest checkpoint"


def _describe_source(mount: DataMount) -> str:
    through = f" (which the link {mount.written} leads to)" if mount.written else ""
    follows = f", with what its links lead to in {', '.join(mount.follows)}" if mount.follows else ""
    return mount.source + through + follows


def _describe_offers(offers: tuple[Offer, ...], machines: int) -> str:
    """Describe the first offer, with the price of that many machines, and count the others."""
    first = offers[0]
    name = first.place if first.instance_type == first.provider else f"{first.place} {first.instance_type}"
    times, each = (f" x {machines}", " each") if machines > 1 else ("", "")
    gpus = f", {first.accelerators}{each}" if first.accelerators else ""
    others = f" (or {_count(len(offers) - 1)})" if len(offers) > 1 else ""
    market = " spot" if first.spot else ""
    price, disk_price = (format_usd(usd * machines) for usd in (first.usd_per_hour, first.disk_usd_per_hour))
    disks = f" + {disk_price}/h disks and address" if first.disk_usd_per_hour else ""
    once = f" + {format_usd(first.once_usd)} once for filling volumes" if first.once_usd else ""
    return f"{name}{times}{gpus}{market} at {price}/h{disks}{once}{others}"


def _count(others: int) -> str:
    return "1 other offer" if others == 1 else f"{others} other offers"
