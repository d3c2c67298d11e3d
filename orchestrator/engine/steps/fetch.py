"""Fetches the results of a run's only machine to the laptop, and verifies the copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import Command, MachineReport, RunState
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.task_folder import folder_of
from orchestrator.core.protocol.tree import Arrival, is_below
from orchestrator.core.values.units import format_bytes
from orchestrator.engine import agent_client
from orchestrator.engine.steps.wanted import Wanted
from orchestrator.engine.world import World

_SHOWN = 200
_NAMED = 3
TRIES = 3
"""How often to copy again: a running command changes files while they are copied."""
_AT_LEAST = timedelta(minutes=10)
"""The least time for a copy, even if the machine should be gone by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch.

    Attributes:
        note: describes it to the user.
        final: how the command ended, if the copy is verified, has all that is fetched by default, and was made after
            that.
        report: the machine's, from before the copy; None if the results come from the store.
        ended: the machines of which there is such a copy with nothing left out.
    """

    note: str
    final: Command | None = None
    report: MachineReport | None = None
    ended: tuple[str, ...] = ()


def fetch_results(world: World, machine: Machine, wanted: Wanted) -> Fetched:
    """Copy the results from the machine if its answers are valid, else from the object store.

    Raises:
        KedgeError: there is nothing to fetch from, or the copy differs from its source.
    """
    try:
        return _fetch_from_machine(world, machine, wanted)
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
    return Fetched(note=fetch_from_store(world, machine.run_id, wanted) + why)


def fetch_from_store(world: World, run_id: str, wanted: Wanted) -> str:
    """Copy what the agent uploaded to the object store; the store verifies each file.

    Raises:
        KedgeError: nothing was uploaded, or it is damaged.
    """
    files = wanted.below_folders(world.store.manifest(run_id)) if world.store else []
    if world.store is None or not files:
        raise KedgeError(
            f"there are no results of run {run_id}",
            why="its machine doesn't answer, and has uploaded nothing",
            fix=f"see `kedge status {run_id}`; `kedge resume {run_id}` gives it a machine",
        )
    wanted = leave_to_store(world, run_id, wanted)
    chosen = wanted.choose(files)
    folders = tuple(wanted.folders.values())
    only = None if len(chosen) == len(files) else {file.path for file in chosen}
    arrival = world.store.fetch(run_id, wanted.destination, wanted.progress, folders=folders, only=only)
    return f"{describe_copy(chosen, arrival)}, from the object store{wanted.describe_rest(files, chosen)}"


def _fetch_from_machine(world: World, machine: Machine, wanted: Wanted) -> Fetched:
    there = world.provider.describe(machine.id)
    if there is None or not there.may_answer:
        raise UnreachableError(f"machine {machine.id} can't be reached")
    remote = world.connector.connect(there.require_address())
    report = agent_client.report(remote, there)
    at_work = is_at_work(report, wanted.folders)
    wanted = leave_to_store(world, machine.run_id, wanted, report)
    for _ in range(TRIES):
        files = wanted.below_folders(agent_client.manifest(remote, there))
        chosen = wanted.choose(files)
        arrival = _copy(world, there, wanted, chosen, is_whole=len(chosen) == len(files))
        rest = wanted.describe_rest(files, chosen)
        if not arrival.different:
            note = describe_copy(chosen, arrival) + rest
            is_final = report.command.state.is_over and not wanted.folders and not wanted.choice.only
            return Fetched(
                note=f"{note}; {STILL_AT_WORK}" if at_work else note,
                final=report.command if is_final else None,
                report=report,
                ended=(machine.id,) if is_final and not rest else (),
            )
    if not agent_client.report(remote, there).command.state.is_live:
        raise differing(arrival)
    return Fetched(note=describe_copy(chosen, arrival) + rest + describe_changing(arrival))


def leave_to_store(world: World, run_id: str, wanted: Wanted, head: MachineReport | None = None) -> Wanted:
    """Leave the older checkpoints of a run that has succeeded to the object store, as far as it lists them.

    Args:
        world: the run's ports.
        run_id: the run.
        wanted: what is fetched.
        head: the report of the run's first machine; None if it doesn't answer.
    """
    store = world.store
    if store is None or not wanted.leaves_steps:
        return wanted
    # A store that doesn't answer, or whose list can't be read, has nothing for certain.
    with suppress(KedgeError):
        last = store.last_upload(run_id) if head is None else None
        command = head.command if head is not None else last.command if last is not None else Command()
        if command.state is RunState.SUCCEEDED:
            return wanted.leaving(file for rank in world.ranks(run_id) for file in store.manifest(run_id, rank=rank))
    return wanted


def is_at_work(report: MachineReport, folders: Mapping[str, str]) -> bool:
    """Tell whether a task runs whose results are among these folders; without folders, whether any does."""
    return any(
        task.command.state.is_live
        and is_below(folder_of(name, sequence=report.sequence, mode=report.mode).log, folders.values())
        for name, task in report.each_task.items()
    )


def _copy(world: World, machine: Machine, wanted: Wanted, files: Sequence[ResultFile], *, is_whole: bool) -> Arrival:
    """Copy the results, or only some of their folders, each on its own, and of their files."""
    results, within = f"{machine.root}/results", time_to_copy(machine, world.clock.now())
    fetch = partial(world.mover.fetch, machine, progress=wanted.progress, within=within)
    if not is_whole or not wanted.folders:
        return fetch(results, wanted.destination, files=files, only=not is_whole)
    alone = [file for file in files if file.path in wanted.folders.values()]
    whole = fetch(results, wanted.destination, files=alone, only=True) if alone else Arrival()
    for folder in wanted.folders.values():
        own = [
            replace(file, path=file.path[len(folder) + 1 :])
            for file in files
            if is_below(file.path, (folder,)) and file not in alone
        ]
        if own:
            arrival = fetch(f"{results}/{folder}", f"{wanted.destination}/{folder}", files=own)
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
