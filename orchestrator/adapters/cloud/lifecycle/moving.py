"""Moves a machine's deadline at its cloud: in this computer's record, in the instance's marks, and in the guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.lifecycle.completing import still_possible
from orchestrator.adapters.cloud.model import is_made_by, present
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext

_SECOND = timedelta(seconds=1)


def move_deadline(ctx: CloudContext, machine_id: str, deadline_at: datetime) -> Sequence[str]:
    """Move it, as `core.ports.Provider.move_deadline` says; the record comes first, because the others repeat it.

    Raises:
        KedgeError: this computer hasn't requested the machine, the cloud doesn't list it, or refuses a step.
    """
    record = ctx.records.machine(machine_id)
    ctx.refuse_other_account_of(record)
    instance = next(iter(present(ctx.find(machine_id, record))), None)
    if record is None or instance is None or not is_made_by(instance, record):
        raise KedgeError(
            f"the deadline of machine {machine_id} can't be moved from this computer",
            why=f"{ctx.traits.speaker} doesn't list it" if instance is None else "another computer has requested it",
            fix="run the command on the computer that launched it",
        )
    # Rounded down: the machine may cost a second less than was asked for, never more.
    lifetime = (deadline_at - instance.created_at) // _SECOND
    ctx.records.keep_machine(
        replace(record, lifetime_seconds=lifetime, armed=record.armed or ctx.api.guard is not None)
    )
    is_marked = ctx.api.mark_lifetime(instance, lifetime * _SECOND)
    if ctx.api.guard is not None:
        ctx.api.guard.move(machine_id, instance.id, instance.region, still_possible(ctx, deadline_at))
    return () if is_marked else (_describe_marks(ctx, machine_id),)


def _describe_marks(ctx: CloudContext, machine_id: str) -> str:
    return (
        f"the tags of {machine_id} keep the old deadline, because {ctx.traits.speaker} lets nobody change them: "
        "`kedge reap --all` on another computer may end it then"
    )
