"""Fetches a run's results to the laptop and verifies the copy."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import Command
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import Arrival
from orchestrator.core.transfers import Progress
from orchestrator.core.values.units import format_bytes
from orchestrator.engine import agent_client
from orchestrator.engine.world import World

_SHOWN = 200
_NAMED = 3
_TRIES = 3
"""How often to copy again: a running command changes files while they are copied."""
_AT_LEAST = timedelta(minutes=10)
"""The least time for a copy, even if the machine should be gone by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch.

    Attributes:
        note: describes it to the user.
        final: how the command ended, if the copy is verified, complete, and was made after that.
    """

    note: str
    final: Command | None = None


def fetch_results(world: World, machine: Machine, destination: str, progress: Progress) -> Fetched:
    """Copy the results from the machine if its answers are valid, else from the object store.

    Raises:
        KedgeError: there is nothing to fetch from, or the copy differs from its source.
    """
    try:
        return _fetch_from_machine(world, machine, destination, progress)
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
    return Fetched(note=fetch_from_store(world, machine.run_id, destination, progress) + why)


def fetch_from_store(world: World, run_id: str, destination: str, progress: Progress) -> str:
    """Copy what the agent uploaded to the object store; the store verifies each file.

    Raises:
        KedgeError: nothing was uploaded, or it is damaged.
    """
    files = world.store.manifest(run_id) if world.store else ()
    if world.store is None or not files:
        raise KedgeError(
            f"there are no results of run {run_id}",
            why="its machine doesn't answer, and has uploaded nothing",
            fix=f"see `kedge status {run_id}`; `kedge resume {run_id}` gives it a machine",
        )
    arrival = world.store.fetch(run_id, destination, progress)
    return f"{_describe(files, arrival)}, from the object store"


def _fetch_from_machine(world: World, machine: Machine, destination: str, progress: Progress) -> Fetched:
    there = world.provider.describe(machine.id)
    if there is None or not there.may_answer:
        raise UnreachableError(f"machine {machine.id} can't be reached")
    remote = world.connector.connect(there.require_address())
    command = agent_client.report(remote, there).command
    for _ in range(_TRIES):
        files = agent_client.manifest(remote, there)
        within = time_to_copy(machine, world.clock.now())
        arrival = world.mover.fetch(there, f"{there.root}/results", destination, progress, files=files, within=within)
        if not arrival.different:
            note = _describe(files, arrival)
            if command.state.is_over:
                return Fetched(note=note, final=command)
            return Fetched(note=f"{note}; {STILL_AT_WORK}" if command.state.is_live else note)
    if not agent_client.report(remote, there).command.state.is_live:
        raise KedgeError(
            f"the copy of {arrival.different[0][:_SHOWN]!r} differs from the machine's",
            why="the transfer was cut off, or something changes the file while it is copied",
            fix="fetch again with `kedge fetch`; what is there already isn't sent again",
        )
    named = ", ".join(repr(path[:_SHOWN]) for path in arrival.different[:_NAMED])
    more = f" and {len(arrival.different) - _NAMED:,} more" if len(arrival.different) > _NAMED else ""
    return Fetched(note=f"{_describe(files, arrival)}, but for {named}{more}, which the command keeps changing")


def time_to_copy(machine: Machine, now: datetime) -> timedelta:
    """Return how long a copy may take: it mustn't keep the machine beyond its deadline."""
    return max(machine.deadline_at - now, _AT_LEAST)


def _describe(files: Sequence[ResultFile], arrival: Arrival) -> str:
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
