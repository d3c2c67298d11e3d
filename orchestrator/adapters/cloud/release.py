"""Releases a run without machines: removes its guards and resources, and ends its data volumes as their marks say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.listing import find_all
from orchestrator.adapters.cloud.model import Phase, Wanted
from orchestrator.adapters.cloud.volumes.end import VolumeEnd, end_volumes
from orchestrator.adapters.host.ids import check_id
from orchestrator.core.errors import StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord


def release_run(ctx: CloudContext, run_id: str) -> Sequence[str]:
    """Remove everything, and delete the run's records.

    Returns:
        What was removed or kept, one line each.

    Raises:
        StillBillingError: it still has a machine, or a part isn't removed yet; a later call continues with the rest.
        KedgeError: the cloud refuses.
    """
    ctx.refuse_other_account(check_id(run_id))
    places = sorted(ctx.places_of(run_id))
    records = [each for each in ctx.records.machines() if each.run_id == run_id]
    if left := _machines_left(ctx, run_id, places, records):
        raise _unsettled(run_id, [f"it still has {', '.join(sorted(left))}"])
    lines, unfinished = _remove_all(ctx, run_id, places, records)
    for record in records:
        ctx.records.forget_machine(record.id)
    if unfinished:
        raise _unsettled(run_id, unfinished)
    ctx.records.forget_run(run_id)
    return lines


def _machines_left(ctx: CloudContext, run_id: str, places: Sequence[str], records: Iterable[MachineRecord]) -> set[str]:
    found = find_all(ctx, Wanted(run_id=run_id), places)
    left = {each.machine_id or f"{ctx.traits.noun} {each.id}" for each in found if each.phase is not Phase.GONE}
    unlisted = (each for each in records if not ctx.is_settled(each, found))
    return left | {each.id for each in unlisted if ctx.traits.may_still_exist(each, ctx.clock.now())}


def _remove_all(
    ctx: CloudContext, run_id: str, places: Sequence[str], records: Sequence[MachineRecord]
) -> tuple[Sequence[str], Sequence[str]]:
    """Remove it all; return a line for each thing, and again the lines of data volumes that a later call may end."""
    run = ctx.records.run(run_id)
    # A sweep of the account may have found more than this computer has created.
    is_full = run.is_full and run_id not in ctx.swept
    guards: list[str] = []
    volumes: list[VolumeEnd] = []
    for place in places:
        guards += _remove_guards(ctx, run_id, place, records if is_full else None)
        if ctx.api.volumes is not None and (not is_full or place in run.volume_places):
            volumes += end_volumes(ctx.api.volumes, run_id, place, ctx.clock)
    rest = ctx.api.resources.remove(run_id, places, is_full=is_full)
    lines = [*guards, *(each.says for each in volumes), *rest]
    return lines, [each.says for each in volumes if not each.is_settled]


def _remove_guards(
    ctx: CloudContext, run_id: str, place: str, records: Iterable[MachineRecord] | None
) -> Iterable[str]:
    guard = ctx.api.guard
    if guard is None:
        return []
    armed = None if records is None else [each.id for each in records if each.armed and each.region == place]
    return [f"removed {guard.noun} {name} in {place}" for name in guard.disarm_run(run_id, place, armed)]


def _unsettled(run_id: str, why: Sequence[str]) -> StillBillingError:
    return StillBillingError(
        f"not all that run {run_id} has is settled yet",
        why="; ".join(why),
        fix=f"run `kedge teardown {run_id}` again in some minutes",
    )
