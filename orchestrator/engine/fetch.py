"""Brings a run's results home and verifies the copy."""

from __future__ import annotations

import hashlib
from pathlib import Path

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.ports import Progress
from orchestrator.core.report import ResultFile
from orchestrator.core.units import format_bytes
from orchestrator.engine import agent_client
from orchestrator.engine.world import World

_CHUNK = 1 << 20


def fetch_results(world: World, machine: Machine, destination: str, progress: Progress) -> str:
    """Copy results from the machine where it answers, else from the object store.

    Returns:
        What was fetched, for a person.

    Raises:
        KedgeError: there is nothing to fetch from, or the copy differs from what was fetched.
    """
    try:
        return _fetch_from_machine(world, machine, destination, progress)
    except UnreachableError:
        if world.store is None:
            raise
    return fetch_from_store(world, machine.run_id, destination, progress)


def fetch_from_store(world: World, run_id: str, destination: str, progress: Progress) -> str:
    """Copy what the agent shipped to the object store; the store verifies each file.

    Raises:
        KedgeError: nothing was shipped, or what was shipped is damaged.
    """
    files = world.store.manifest(run_id) if world.store else ()
    if world.store is None or not files:
        raise KedgeError(
            f"there are no results of run {run_id}",
            why="its machine doesn't answer, and nothing was copied to the object store",
            fix=f"see `kedge status {run_id}`",
        )
    world.store.fetch(run_id, destination, progress)
    return f"{_describe(files)} from the object store"


def _fetch_from_machine(world: World, machine: Machine, destination: str, progress: Progress) -> str:
    there = world.provider.describe(machine.id)
    if there is None or there.state is not MachineState.READY or there.address is None:
        raise UnreachableError(f"machine {machine.id} can't be reached")
    remote = world.connector.connect(there.address)
    files = agent_client.manifest(remote, there)
    world.data.fetch(there, f"{there.root}/results", destination, progress)
    verify(files, Path(destination))
    return _describe(files)


def verify(files: tuple[ResultFile, ...], folder: Path) -> None:
    """Compare a copy with its manifest.

    Raises:
        KedgeError: a file is missing or differs.
    """
    for file in files:
        path = folder / file.path
        if not path.is_file() or path.stat().st_size < file.bytes or _sha256(path, file.bytes) != file.sha256:
            raise KedgeError(
                f"the copy of {file.path} differs from the machine's",
                why="it was cut, or the command changed it while it was copied",
                fix="fetch again with `kedge fetch`; what is there already isn't sent again",
            )


def _sha256(path: Path, size: int) -> str:
    """Hash a file's first bytes: a log may have grown since the manifest was made."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def _describe(files: tuple[ResultFile, ...]) -> str:
    return f"{len(files):,} files, {format_bytes(sum(file.bytes for file in files))}, verified"
