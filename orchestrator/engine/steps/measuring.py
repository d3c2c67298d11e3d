"""Says how much a fetch would copy, without copying anything."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import Machine, newest_gang
from orchestrator.core.protocol.choice import describe_amount
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.protocol.results import ResultFile
from orchestrator.engine import agent_client
from orchestrator.engine.steps.fetch import leave_to_store
from orchestrator.engine.steps.wanted import Wanted
from orchestrator.engine.world import World


def measure_fetch(world: World, run_id: str, wanted: Wanted) -> str:
    """Return how many files and bytes of a run would be copied, and what would be left out.

    Raises:
        BadRequestError: nothing matches what is wanted.
        KedgeError: the object store can't be used.
    """
    sources = {machine.rank: _look(world, machine) for machine in newest_gang(world.ledger.machines(run_id))}
    head, _ = sources.get(0, (None, ()))
    wanted = leave_to_store(world, run_id, wanted, head)
    files = wanted.below_folders(file for _, files in sources.values() for file in files)
    chosen = wanted.choose(files)
    return f"to fetch: {describe_amount(chosen)}{wanted.describe_rest(files, chosen)}"


def _look(world: World, machine: Machine) -> tuple[MachineReport | None, Sequence[ResultFile]]:
    """Return a machine's report, None if it doesn't answer, and its results or what it has uploaded."""
    with suppress(KedgeError):
        there = world.provider.describe(machine.id)
        if there is not None and there.may_answer:
            remote = world.connector.connect(there.require_address())
            return agent_client.report(remote, there), agent_client.manifest(remote, there)
    return None, world.store.manifest(machine.run_id, rank=machine.rank) if world.store is not None else ()
