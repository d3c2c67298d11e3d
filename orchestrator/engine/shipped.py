"""What a run's machines have left in the object store: their word, too, which may be nonsense."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.ports import Shipment
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What the store says of a run.

    Attributes:
        last: the last copy of its results; None where there is none, or none that can be read.
        problem: why it can't be read; empty where nothing is wrong.
    """

    last: Shipment | None = None
    problem: str = ""


def look_up(world: World, run_id: str) -> Shipped:
    """Read what was shipped last; nothing of it stands before the end of a machine, or of a run.

    A machine may also leave what nobody can read: in S3's archive, or encrypted with a key of its own.

    Raises:
        UnreachableError: the store doesn't answer.
    """
    try:
        return Shipped(last=world.store.last_shipment(run_id) if world.store else None)
    except UnreachableError:
        raise
    except KedgeError as err:
        return Shipped(problem=f"{err.what}: {err.why}")


def shipped_by(world: World, run_id: str, machine_id: str) -> Shipment | None:
    """Return what was shipped last, where that machine did it.

    Raises:
        UnreachableError: the store doesn't answer.
    """
    last = look_up(world, run_id).last
    return last if last is not None and last.machine == machine_id else None
