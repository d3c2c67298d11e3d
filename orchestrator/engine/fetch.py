"""Brings a run's results home and verifies the copy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from orchestrator.core.actions import STILL_AT_WORK
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.ports import Progress
from orchestrator.core.report import Command, ResultFile
from orchestrator.core.tree import Arrival, home_path
from orchestrator.core.units import format_bytes
from orchestrator.engine import agent_client
from orchestrator.engine.world import World

_CHUNK = 1 << 20
_SHOWN = 200
_NAMED = 3
_TRIES = 3
"""A command at work changes files while they are copied: these are copied again."""
_AT_LEAST = timedelta(minutes=10)
"""For a copy from a machine that should have gone by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What was brought home.

    Attributes:
        note: for a person.
        final: how the command ended, where this is a verified copy of all that is on the machine, made after that.
    """

    note: str
    final: Command | None = None


def fetch_results(world: World, machine: Machine, destination: str, progress: Progress) -> Fetched:
    """Copy results from the machine where it answers and makes sense, else from the object store.

    Raises:
        KedgeError: there is nothing to fetch from, or the copy differs from what was fetched.
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
        # Whatever the machine does to a copy: what it has shipped is as good.
        if not world.has_results(machine.run_id):
            raise
        why = f", since {err.what}"
    return Fetched(note=fetch_from_store(world, machine.run_id, destination, progress) + why)


def fetch_from_store(world: World, run_id: str, destination: str, progress: Progress) -> str:
    """Copy what the agent shipped to the object store; the store verifies each file.

    Raises:
        KedgeError: nothing was shipped, or what was shipped is damaged.
    """
    files = world.store.manifest(run_id) if world.store else ()
    if world.store is None or not files:
        raise KedgeError(
            f"there are no results of run {run_id}",
            why="its machine doesn't answer, and nothing was copied off it",
            fix=f"see `kedge status {run_id}`",
        )
    arrival = world.store.fetch(run_id, destination, progress)
    return f"{_describe(files, arrival)}, from the copy that was kept"


def _fetch_from_machine(world: World, machine: Machine, destination: str, progress: Progress) -> Fetched:
    there = world.provider.describe(machine.id)
    if there is None or not there.may_answer:
        raise UnreachableError(f"machine {machine.id} can't be reached")
    remote = world.connector.connect(there.require_address())
    command = agent_client.report(remote, there).command
    for _ in range(_TRIES):
        files = agent_client.manifest(remote, there)
        within = time_to_copy(machine, world.clock.now())
        arrival = world.data.fetch(there, f"{there.root}/results", destination, progress, files=files, within=within)
        different = find_differences([file for file in files if file.path not in arrival.left_out], Path(destination))
        if not different:
            note = _describe(files, arrival)
            if command.state.is_over:
                return Fetched(note=note, final=command)
            return Fetched(note=f"{note}; {STILL_AT_WORK}" if command.state.is_live else note)
    if not agent_client.report(remote, there).command.state.is_live:
        raise KedgeError(
            f"the copy of {different[0][:_SHOWN]!r} differs from the machine's",
            why="it was cut, or something changes it while it is copied",
            fix="fetch again with `kedge fetch`; what is there already isn't sent again",
        )
    named = ", ".join(repr(path[:_SHOWN]) for path in different[:_NAMED])
    more = f" and {len(different) - _NAMED:,} more" if len(different) > _NAMED else ""
    return Fetched(note=f"{_describe(files, arrival)}, but for {named}{more}, which the command keeps changing")


def time_to_copy(machine: Machine, now: datetime) -> timedelta:
    """Return how long a machine may take to hand over its results: it isn't to outlive its deadline by that."""
    return max(machine.deadline_at - now, _AT_LEAST)


def find_differences(files: Sequence[ResultFile], folder: Path) -> list[str]:
    """Compare a copy with its manifest; return the paths of files that are missing or differ.

    Of links it is enough that they are there: what they lead to is compared where it lies.
    """
    return [file.path for file in files if not _is_there(folder / home_path(file.path), file)]


def _is_there(path: Path, file: ResultFile) -> bool:
    try:
        return path.is_symlink() if file.link else _is_same(path, file)
    except OSError:
        return False


def _is_same(path: Path, file: ResultFile) -> bool:
    return path.is_file() and path.stat().st_size >= file.bytes and _sha256(path, file.bytes) == file.sha256


def _sha256(path: Path, size: int) -> str:
    """Hash a file's first bytes: a log may have grown since the manifest was made."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def _describe(files: Sequence[ResultFile], arrival: Arrival) -> str:
    came = [file for file in files if file.path not in arrival.left_out]
    said = [f"{len(came):,} files, {format_bytes(sum(file.bytes for file in came if not file.link))}, verified"]
    if arrival.left_out:
        first, why = next(iter(sorted(arrival.left_out.items())))
        said.append(f"{_named(arrival.left_out)} left out ({first[:_SHOWN]!r}: {why})")
    if arrival.renamed:
        first, home = next(iter(sorted(arrival.renamed.items())))
        said.append(
            f"{_named(arrival.renamed)} renamed, so that git and Mercurial run nothing in what came home "
            f"({first[:_SHOWN]!r} is {home[:_SHOWN]!r} now)"
        )
    return "; ".join(said)


def _named(paths: Sized) -> str:
    return "1 was" if len(paths) == 1 else f"{len(paths):,} were"
