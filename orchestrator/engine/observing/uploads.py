"""What a run's machines have uploaded to the object store, which is as trustworthy as the machines."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.transfers import LastUpload
from orchestrator.engine.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUploads:
    """The state of a run according to the object store.

    Attributes:
        last: the last upload of its results; None if there is none, or none that can be read.
        problem: why it can't be read; empty if nothing is wrong.
    """

    last: LastUpload | None = None
    problem: str = ""


def read_uploads(world: World, run_id: str, *, rank: int = 0) -> RunUploads:
    """Read the last upload of the machine of a rank; that of the head is the run's.

    Invalid content must not prevent the end of a machine, or of a run. A machine may also make it unreadable: it can
    archive it in S3, or encrypt it with a key of its own.

    Raises:
        UnreachableError: the store doesn't answer.
    """
    try:
        return RunUploads(last=world.store.last_upload(run_id, rank=rank) if world.store else None)
    except UnreachableError:
        raise
    except KedgeError as err:
        return RunUploads(problem=f"{err.what}: {err.why}")


def last_upload_of(world: World, run_id: str, machine_id: str, *, rank: int = 0) -> LastUpload | None:
    """Return the last upload if that machine made it.

    Raises:
        UnreachableError: the store doesn't answer.
    """
    last = read_uploads(world, run_id, rank=rank).last
    return last if last is not None and last.machine == machine_id else None
