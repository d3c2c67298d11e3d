"""Fetches the results of a run's only machine to the laptop, and verifies the copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import Command, MachineReport
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.task_folder import folder_of
from orchestrator.core.protocol.tree import Arrival, is_below
from orchestrator.core.transfers import Progress
from orchestrator.core.values.units import format_bytes
from orchestrator.engine import agent_client
from orchestrator.engine.world import World

_SHOWN = 200
_NAMED = 3
TRIES = 3
"""How often to copy again: a running command changes files while they are copied."""
_AT_LEAST = timedelta(minutes=10)
"""The least time for a copy, even if the machine should be gone by now."""


NO_FOLDERS: Mapping[str, str] = MappingProxyType({})
"""All results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch.

    Attributes:
        note: describes it to the user.
        final: how the command ended, if the copy is verified, complete, and was made after that.
        report: the machine's, from before the copy; None if the results come from the store.
        ended: the machines of which there is such a copy.
    """

    note: str
    final: Command | None = None
    report: MachineReport | None = None
    ended: tuple[str, ...] = ()


def fetch_results(
    world: World, machine: Machine, destination: str, progress: Progress, folders: Mapping[str, str] = NO_FOLDERS
) -> Fetched:
    """Copy the results from the machine if its answers are valid, else from the object store.

    Args:
        world: the run's ports.
        machine: the sender.
        destination: on the laptop.
        progress: called now and then.
        folders: copy only these folders of the results, each of the task that it belongs to; empty for all.

    Raises:
        KedgeError: there is nothing to fetch from, or the copy differs from its source.
    """
    try:
        return _fetch_from_machine(world, machine, destination, progress, folders)
    except BadRequestError:
        raise
    except UnreachableError:
        if world.store is None:
            raise
        why = ""
    except KedgeError as err:
        # The machine may spoil a copy on purpose. What it has uploaded can still be fetched.
        if not world.has_results(machine.run_id):
            raise
        why = f", since {err.what}"
    return Fetched(note=fetch_from_store(world, machine.run_id, destination, progress, folders) + why)


def fetch_from_store(
    world: World, run_id: str, destination: str, progress: Progress, folders: Mapping[str, str] = NO_FOLDERS
) -> str:
    """Copy what the agent uploaded to the object store; the store verifies each file.

    Raises:
        KedgeError: nothing was uploaded, or it is damaged.
    """
    files = (
        [file for file in world.store.manifest(run_id) if is_below(file.path, folders.values())] if world.store else []
    )
    if world.store is None or not files:
        raise KedgeError(
            f"there are no results of run {run_id}",
            why="its machine doesn't answer, and has uploaded nothing",
            fix=f"see `kedge status {run_id}`; `kedge resume {run_id}` gives it a machine",
        )
    arrival = world.store.fetch(run_id, destination, progress, folders=tuple(folders.values()))
    return f"{describe_copy(files, arrival)}, from the object store"


def _fetch_from_machine(
    world: World, machine: Machine, destination: str, progress: Progress, folders: Mapping[str, str]
) -> Fetched:
    there = world.provider.describe(machine.id)
    if there is None or not there.may_answer:
        raise UnreachableError(f"machine {machine.id} can't be reached")
    remote = world.connector.connect(there.require_address())
    report = agent_client.report(remote, there)
    at_work = is_at_work(report, folders)
    for _ in range(TRIES):
        files = [file for file in agent_client.manifest(remote, there) if is_below(file.path, folders.values())]
        within = time_to_copy(machine, world.clock.now())
        arrival = _copy(world, there, destination, progress, files, folders, within)
        if not arrival.different:
            note = describe_copy(files, arrival)
            final = report.command if report.command.state.is_over and not folders else None
            return Fetched(
                note=f"{note}; {STILL_AT_WORK}" if at_work else note,
                final=final,
                report=report,
                ended=(machine.id,) if final else (),
            )
    if not agent_client.report(remote, there).command.state.is_live:
        raise differing(arrival)
    return Fetched(note=describe_copy(files, arrival) + describe_changing(arrival))


def is_at_work(report: MachineReport, folders: Mapping[str, str]) -> bool:
    """Tell whether a task runs whose results are among these folders; without folders, whether any does."""
    return any(
        task.command.state.is_live
        and is_below(folder_of(name, sequence=report.sequence, mode=report.mode).log, folders.values())
        for name, task in report.each_task.items()
    )


def _copy(
    world: World,
    machine: Machine,
    destination: str,
    progress: Progress,
    files: Sequence[ResultFile],
    folders: Mapping[str, str],
    within: timedelta,
) -> Arrival:
    """Copy the results, or only some of their folders, each on its own, and of their files."""
    results = f"{machine.root}/results"
    if not folders:
        return world.mover.fetch(machine, results, destination, progress, files=files, within=within)
    alone = [file for file in files if file.path in folders.values()]
    whole = Arrival()
    if alone:
        whole = world.mover.fetch(machine, results, destination, progress, files=alone, only=True, within=within)
    for folder in folders.values():
        own = [
            replace(file, path=file.path[len(folder) + 1 :])
            for file in files
            if is_below(file.path, (folder,)) and file not in alone
        ]
        if not own:
            continue
        home = f"{destination}/{folder}"
        arrival = world.mover.fetch(machine, f"{results}/{folder}", home, progress, files=own, within=within)
        whole = whole.with_folder(folder, arrival)
    return whole


def time_to_copy(machine: Machine, now: datetime) -> timedelta:
    """Return how long a copy may take: it mustn't keep the machine beyond its deadline."""
    return max(machine.deadline_at - now, _AT_LEAST)


def differing(arrival: Arrival) -> KedgeError:
    """Return the error for a copy that isn't what the machine has, though no command runs."""
    return KedgeError(
        f"the copy of {arrival.different[0][:_SHOWN]!r} differs from the machine's",
        why="the transfer was cut off, or something changes the file while it is copied",
        fix="fetch again with `kedge fetch`; what is there already isn't sent again",
    )


def describe_changing(arrival: Arrival) -> str:
    """Name the files that a running command changed whenever they were copied."""
    named = ", ".join(repr(path[:_SHOWN]) for path in arrival.different[:_NAMED])
    more = f" and {len(arrival.different) - _NAMED:,} more" if len(arrival.different) > _NAMED else ""
    return f", but for {named}{more}, which the command keeps changing"


def describe_copy(files: Sequence[ResultFile], arrival: Arrival) -> str:
    """Count what has come, and name what was left out or renamed."""
    came = [file for file in files if file.path not in arrival.left_out]
    said = [f"{len(came):,} files, {format_bytes(sum(file.bytes for file in came if not file.link))}, verified"]
    if arrival.left_out:
        first, why = next(iter(sorted(arrival.left_out.items())))
        said.append(f"{_named(arrival.left_out)} left out ({first[:_SHOWN]!r}: {why})")
    if arrival.renamed:
        first, home = next(iter(sorted(arrival.renamed.items())))
        said.append(
            f"{_named(arrival.renamed)} renamed, so that git and Mercurial run nothing from these results "
            f"({first[:_SHOWN]!r} is {home[:_SHOWN]!r} now)"
        )
    return "; ".join(said)


def _named(paths: Sized) -> str:
    return "1 was" if len(paths) == 1 else f"{len(paths):,} were"
