"""Finds what an order has become, by its mark or its recorded id, whatever the cloud has answered.

An outcome is known once an instance is found that the order's own request made (`model.is_made_by`). An instance with
the same mark may come from an earlier request that has ended, or from another computer. If it is alive, it is used,
but the record stays unclear.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.lifecycle.deletion import delete_until_gone
from orchestrator.adapters.cloud.model import Instance, Phase, is_made_by
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import KedgeError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.refusals import Unclear

_log = logging.getLogger(__name__)


def find_earlier(ctx: CloudContext, machine_id: str, earlier: MachineRecord | None) -> list[Instance]:
    """Find what an earlier command, or another computer, has created, including instances that have ended.

    The cloud may list an instance only some time after its creation. Wait that long, unless a living instance is
    listed, or the outcome of the earlier request is known.

    Raises:
        KedgeError: the cloud doesn't tell.
    """
    if earlier is None and not ctx.idempotency.looks_first:
        return []

    found: list[Instance] = []

    def is_known() -> bool:
        found[:] = _find_settled(ctx, machine_id, earlier)
        return any(each.can_serve for each in found) or _is_known(ctx, earlier, found)

    poll_until(is_known, ctx.traits.settles_in, ctx.clock)
    return found


def look_up(ctx: CloudContext, record: MachineRecord, ended: Collection[str], cause: Unclear) -> Instance:
    """Find what an unclear request has created; if that isn't listed, accept another computer's living instance.

    Args:
        ctx: the cloud.
        record: the record of the request.
        ended: ids of the machine's instances that had ended before.
        cause: the unclear outcome.

    Raises:
        StillBillingError: nothing is listed so far.
    """
    found: list[Instance] = []

    def is_listed() -> bool:
        listed = ctx.list_marked(record.id, record)
        living = [each for each in listed if each.phase is not Phase.GONE and each.id not in ended]
        found[:] = [each for each in living if each.can_serve or is_made_by(each, record)]
        # A final answer means that another request has the token, and so the instance.
        return any(is_made_by(each, record) or cause.is_final for each in found)

    try:
        poll_until(is_listed, ctx.traits.looked_up_for, ctx.clock)
    except KedgeError as err:
        raise unclear_error(ctx, record, f"{cause.why}; then: {err.what}: {err.why}") from err
    if not found:
        raise unclear_error(ctx, record, cause.why) from cause.error
    return next((each for each in found if is_made_by(each, record)), found[0])


def settle_duplicates(ctx: CloudContext, machine_id: str, made: Instance | None = None) -> Instance | None:
    """Find a machine's instance; if two computers have created several at once, delete all but the oldest.

    Args:
        ctx: the cloud.
        machine_id: the machine.
        made: an instance that was created just now. Wait until it is listed, because every older one is listed by
            then, or until an older one is.

    Raises:
        KedgeError: the cloud doesn't answer, or doesn't delete one.
    """
    found: list[Instance] = []
    record = ctx.records.machine(machine_id)

    def is_listed() -> bool:
        found[:] = [each for each in ctx.list_marked(machine_id, record) if each.can_serve]
        return made is None or any(each.age_order <= made.age_order for each in found)

    poll_until(is_listed, ctx.traits.settles_in, ctx.clock)
    listed_ids = {each.id for each in found}
    if made is not None and made.id not in listed_ids:
        found.append(made)
    if not found:
        return None
    oldest, *duplicates = sorted(found, key=lambda each: each.age_order)
    for each in duplicates:
        _log.warning("machine %s was made twice: %s %s is deleted", machine_id, ctx.traits.noun, each.id)
        _delete_duplicate(ctx, machine_id, each, is_listed=each.id in listed_ids)
    return oldest


def note_instance(ctx: CloudContext, machine_id: str, instance: Instance) -> MachineRecord | None:
    """Record the instance of an order; None if another computer requested the instance."""
    record = ctx.records.machine(machine_id)
    if record is None or not is_made_by(instance, record):
        return None
    if record.provider_id != instance.id or record.unclear_since is not None:
        record = replace(record, provider_id=instance.id, unclear_since=None, noted_at=ctx.clock.now())
        ctx.records.keep_machine(record)
    return record


def refuse_unclear(ctx: CloudContext, run_id: str) -> None:
    """Refuse to create a machine while this one, or another of the run, may have been created.

    Raises:
        StillBillingError: one may have been created.
        KedgeError: the cloud doesn't tell.
    """
    for record in ctx.records.machines():
        if record.run_id != run_id or record.unclear_since is None:
            continue
        if not ctx.traits.may_still_exist(record, ctx.clock.now()):
            continue
        if not ctx.is_settled(record, ctx.list_marked(record.id, record)):
            raise unclear_error(ctx, record, "an earlier command left it open")


def unclear_error(ctx: CloudContext, record: MachineRecord, cause: str) -> StillBillingError:
    """Make the error for an order with an unclear outcome."""
    minutes = ctx.traits.unclear_for / timedelta(minutes=1)
    wanted = f"{ctx.traits.noun} in {record.region}" if ctx.traits.is_regional else ctx.traits.noun
    return StillBillingError(
        f"machine {record.id} may have been created",
        why=f"{ctx.traits.speaker} didn't answer clearly ({cause}), and no such {wanted} is listed so far",
        fix=f"run `kedge teardown {record.run_id}`, which looks again; it counts as billing for {minutes:.0f} minutes",
    )


def _find_settled(ctx: CloudContext, machine_id: str, earlier: MachineRecord | None) -> list[Instance]:
    if not ctx.idempotency.settles_duplicates:
        return ctx.find(machine_id, earlier)
    one = settle_duplicates(ctx, machine_id)
    return [one] if one is not None else ctx.read_recorded(earlier)


def _is_known(ctx: CloudContext, earlier: MachineRecord | None, found: Collection[Instance]) -> bool:
    """Tell whether an earlier request's instance is found, or would already be listed."""
    if earlier is None or earlier.ended or ctx.is_settled(earlier, found):
        return True
    return ctx.clock.now() - earlier.young_from > ctx.traits.settles_in


def _delete_duplicate(ctx: CloudContext, machine_id: str, duplicate: Instance, *, is_listed: bool) -> None:
    """Delete a duplicate, which may be too young to be known by its id, or already deleted by its own maker."""
    begun = ctx.clock.now()

    def is_settled() -> bool:
        if not is_listed:
            return ctx.clock.now() - begun > ctx.traits.settles_in
        listed = ctx.list_marked(machine_id, None)
        return all(each.id != duplicate.id or not each.can_serve for each in listed)

    if not delete_until_gone(ctx, duplicate.id, duplicate.region, is_settled):
        _log.warning("%s %s is still shown after its deletion", ctx.traits.noun, duplicate.id)
