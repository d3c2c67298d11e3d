"""Ends a machine for good: only the cloud's confirmation counts, since an instance that is off may bill on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Deletion, Phase
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import KedgeError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.model import Target
    from orchestrator.adapters.cloud.records import MachineRecord

_log = logging.getLogger(__name__)


def delete_machine(ctx: CloudContext, machine_id: str) -> None:
    """Delete every instance with a machine's id, and release what bills besides it.

    Raises:
        BadRequestError: it is in another account.
        StillBillingError: an instance is listed long after its deletion, or something besides it can't be released.
        KedgeError: the cloud doesn't answer, or doesn't delete.
    """
    record = ctx.records.machine(machine_id)
    targets = ctx.targets(machine_id, record)
    if not targets:
        return
    left, unseen = _give_back_first(ctx, [each.id for each in targets])
    if ctx.traits.shown_for:
        failed = _delete_all_until_gone(ctx, machine_id, targets, record)
    else:
        failed = _ask_for_ends(ctx, machine_id, targets)
    # Also after a deletion that failed: it may have had its effect, and then nothing names the address any more.
    reserved = _give_back_rest(ctx, left)
    if failed is not None and reserved:
        raise _not_deleted(machine_id, failed, reserved) from failed
    if failed is not None:
        raise failed
    if reserved or unseen:
        raise StillBillingError(
            f"machine {machine_id} is deleted, but its reserved address isn't released",
            why=unseen or reserved,
            fix="release what you reserved for it in the control panel: kedge can no longer tell whose it was",
        )


def end_instance(ctx: CloudContext, instance_id: str, region: str, record: MachineRecord | None) -> bool:
    """Delete one instance as surely as its cloud allows; False if it is still listed, or was never known.

    Args:
        ctx: the cloud.
        instance_id: the instance.
        region: where it is.
        record: its machine's record, which tells its age.

    Raises:
        KedgeError: the cloud doesn't delete it.
    """
    if ctx.traits.shown_for:
        return delete_until_gone(ctx, instance_id, region, lambda: not _is_young(ctx, instance_id, record))

    def is_accepted() -> bool:
        return ctx.api.delete(instance_id, region) is Deletion.ACCEPTED

    return bool(poll_until(is_accepted, ctx.traits.settles_in, ctx.clock))


def delete_until_gone(ctx: CloudContext, instance_id: str, region: str, is_settled: Callable[[], bool]) -> bool:
    """Delete an instance until its cloud no longer lists it; False if it is still listed after some minutes.

    An accepted deletion doesn't suffice: it may have no effect on an instance that is too new.

    Args:
        ctx: the cloud.
        instance_id: the instance.
        region: where it is.
        is_settled: tells whether the instance is old enough for the cloud to know it. Before that, an answer that it is
            unknown doesn't count.

    Raises:
        KedgeError: the cloud doesn't delete it.
    """
    known = False

    def is_gone() -> bool:
        nonlocal known
        if ctx.api.delete(instance_id, region) is Deletion.UNKNOWN:
            return known or is_settled()
        known = True
        return all(each.phase is Phase.GONE for each in ctx.api.read_instances([instance_id], region))

    return bool(poll_until(is_gone, _patience(ctx), ctx.clock))


def not_ended(
    ctx: CloudContext, machine_id: str, instance_ids: Iterable[str], cause: KedgeError | None = None
) -> StillBillingError:
    """Make the error for instances that can't be ended within some minutes.

    Args:
        ctx: the cloud.
        machine_id: the machine.
        instance_ids: its instances.
        cause: why they must end, if the user hasn't requested it.
    """
    minutes = _patience(ctx) / timedelta(minutes=1)
    named = f"{ctx.traits.noun} {', '.join(instance_ids)}"
    if ctx.traits.shown_for:
        says = f"{ctx.traits.speaker} still shows {named}, {minutes:.0f} minutes after its deletion"
    else:
        says = f"{ctx.traits.speaker} doesn't know {named}, {minutes:.0f} minutes after its creation"
    return StillBillingError(
        f"machine {machine_id} may still be billing",
        why=f"{cause.what}: {cause.why}; then: {says}" if cause else says,
        fix="run `kedge teardown` again in some minutes; look at the control panel",
    )


def disarm(ctx: CloudContext, machine_id: str, region: str) -> None:
    """Delete a machine's guard; a failure does no harm: the guard acts on an ended machine, and then deletes itself."""
    if ctx.api.guard is None:
        return
    try:
        ctx.api.guard.disarm(machine_id, region)
    except KedgeError as err:
        _log.warning("%s", err.what)
        return
    record = ctx.records.machine(machine_id)
    if record is not None and record.region == region:
        ctx.records.keep_machine(replace(record, armed=False))


def _give_back_first(ctx: CloudContext, instance_ids: Collection[str]) -> tuple[Sequence[str], str]:
    """Release what bills besides instances, while the cloud still says whose it is.

    Returns:
        What can't be released yet, and why it couldn't be read. The instances cost more, and are deleted anyway.
    """
    try:
        return ctx.api.before_delete(instance_ids), ""
    except KedgeError as err:
        return (), f"{err.what}: {err.why}"


def _give_back_rest(ctx: CloudContext, left: Sequence[str]) -> str:
    """Release what couldn't be released before, and say why something stays; empty if nothing does."""
    if not left:
        return ""
    try:
        still = ctx.api.after_delete(left)
    except KedgeError as err:
        return f"{', '.join(left)} can't be released ({err.what}: {err.why})"
    return f"{', '.join(still)} can't be released yet" if still else ""


def _not_deleted(machine_id: str, failed: KedgeError, reserved: str) -> StillBillingError:
    return StillBillingError(
        f"machine {machine_id} may still be billing, and its reserved address too",
        why=f"{failed.what}: {failed.why}; {reserved}",
        fix=f"{failed.fix or 'run `kedge teardown` again'}; look in the control panel for the address",
    )


def _delete_all_until_gone(
    ctx: CloudContext, machine_id: str, targets: Sequence[Target], record: MachineRecord | None
) -> KedgeError | None:
    shown, errors = _delete_each(targets, lambda each: end_instance(ctx, each.id, each.region, record))
    # If only instances of other requests have ended, the record's own request may still have made one.
    is_own_gone = any(each.is_own for each in targets) and not any(each.is_own for each in shown)
    if record is not None and is_own_gone:
        ctx.records.keep_machine(replace(record, ended=True))
    if errors:
        return errors[0]
    return not_ended(ctx, machine_id, [each.id for each in shown]) if shown else None


def _ask_for_ends(ctx: CloudContext, machine_id: str, targets: Sequence[Target]) -> KedgeError | None:
    """Send one request for each; a region's guard stays if one of its instances may still exist."""
    left, errors = _delete_each(targets, lambda each: ctx.api.delete(each.id, each.region) is not Deletion.UNKNOWN)
    for region in sorted({each.region for each in targets} - {each.region for each in left}):
        disarm(ctx, machine_id, region)
    return errors[0] if errors else None


def _delete_each(
    targets: Sequence[Target], delete: Callable[[Target], bool]
) -> tuple[Sequence[Target], Sequence[KedgeError]]:
    """Delete every instance; a failure doesn't stop the others' deletion.

    Returns:
        Those that may still exist, and the errors.
    """
    left: list[Target] = []
    errors: list[KedgeError] = []
    for each in targets:
        try:
            is_deleted = delete(each)
        except KedgeError as err:
            errors.append(err)
            is_deleted = False
        if not is_deleted:
            left.append(each)
    return left, errors


def _patience(ctx: CloudContext) -> timedelta:
    """Return how long an instance may be listed after its deletion, or be unknown after its creation."""
    return max(ctx.traits.shown_for, ctx.traits.settles_in)


def _is_young(ctx: CloudContext, instance_id: str, record: MachineRecord | None) -> bool:
    if record is None or record.provider_id != instance_id or record.ended:
        return False
    return ctx.clock.now() - record.young_from <= ctx.traits.settles_in
