"""Completes a created instance (record, guard, data volumes, project), or ends it again if that fails."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.lifecycle.deletion import disarm, end_instance, not_ended
from orchestrator.adapters.cloud.lifecycle.reconcile import note_instance, settle_duplicates
from orchestrator.adapters.cloud.model import CreationStatus, Instance, Phase, is_made_by, present
from orchestrator.adapters.cloud.volumes.find import existing_volumes
from orchestrator.adapters.cloud.volumes.holders import give_volumes
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.machine import EndedBy

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)


def complete(ctx: CloudContext, order: MachineOrder, instance: Instance, volumes: Sequence[DataVolume]) -> None:
    """Give an instance its record, guard, volumes and project, and wait until its creation has succeeded.

    Raises:
        NoCapacityError: the accepted creation failed.
        KedgeError: the cloud doesn't allow some of it.
    """
    note_instance(ctx, order.id, instance)
    _arm(ctx, order.id, instance, instance.created_at + timedelta(seconds=order.lifetime_seconds))
    _give(ctx, instance.id, order.run_id, volumes)
    ctx.api.resources.adopt(order.run_id, instance.id)
    _await_accepted(ctx, order, instance)


def complete_adopted(
    ctx: CloudContext, order: MachineOrder, instance: Instance, volumes: Sequence[DataVolume]
) -> Instance:
    """Complete an instance that an earlier command, or another computer, has made.

    Raises:
        NoCapacityError: it will never run, and is ended.
        StillBillingError: it can't be ended.
        KedgeError: it can't be completed; it is ended if it would be unsafe otherwise (`Traits.ends_adopted`).
    """
    try:
        complete(ctx, order, instance, volumes)
    except KedgeError as err:
        if failed := failed_start(ctx, order, err):
            end_again(ctx, order, instance, failed)
            raise failed from err
        if ctx.traits.ends_adopted:
            end_again(ctx, order, instance, err)
        raise
    return instance


def failed_start(ctx: CloudContext, order: MachineOrder, err: KedgeError) -> NoCapacityError | None:
    """Return the error for a machine that the cloud has ended at its start: another offer may work."""
    if isinstance(err, NoCapacityError):
        return err
    says = _why_not_started(ctx, order.id)
    if not says:
        return None
    return NoCapacityError(f"machine {order.id} could not be started", why=says, fix="try again later")


def end_again(ctx: CloudContext, order: MachineOrder, instance: Instance, cause: KedgeError) -> None:
    """End an instance that can't be completed.

    If another computer requested it, it is left to that computer, unless `Traits.ends_adopted` says otherwise.

    Raises:
        StillBillingError: it can't be ended.
    """
    record = ctx.records.machine(order.id)
    is_own = record is not None and is_made_by(instance, record)
    if not is_own and not ctx.traits.ends_adopted:
        return
    _log.warning("machine %s is ended again: %s", order.id, cause.what)
    try:
        is_ended = end_instance(ctx, instance.id, instance.region, record)
    except KedgeError as err:
        raise StillBillingError(
            f"machine {order.id} can be neither completed nor ended",
            why=f"{cause.what}; then: {err.why or err.what}",
            fix=f"run `kedge teardown {order.run_id}`",
        ) from err
    if not is_ended:
        raise not_ended(ctx, order.id, [instance.id], cause) from cause
    if record is not None and is_own and ctx.traits.shown_for:
        ctx.records.keep_machine(replace(record, ended=True))
    if isinstance(cause, NoCapacityError):
        disarm(ctx, order.id, instance.region)


def guard_machine(ctx: CloudContext, machine_id: str) -> None:
    """Complete what a killed creation has left undone; do nothing for an ending machine.

    Only the computer that requested the machine knows its volumes.

    Raises:
        KedgeError: the cloud doesn't list it yet, or refuses a step.
    """
    record = ctx.records.machine(machine_id)
    found = _find_one(ctx, machine_id, record)
    living = next(iter(present(found)), None)
    if living is not None:
        _guard_listed(ctx, machine_id, living)
    elif record is not None and ctx.api.guard is not None and not ctx.is_settled(record, found):
        ctx.refuse_other_account_of(record)
        if ctx.traits.may_still_exist(record, ctx.clock.now()):
            _guard_unlisted(ctx, record)


def _find_one(ctx: CloudContext, machine_id: str, record: MachineRecord | None) -> list[Instance]:
    if not ctx.idempotency.settles_duplicates:
        return ctx.find(machine_id, record)
    one = settle_duplicates(ctx, machine_id)
    return [one] if one is not None else []


def _guard_listed(ctx: CloudContext, machine_id: str, instance: Instance) -> None:
    record = note_instance(ctx, machine_id, instance)
    _arm(ctx, machine_id, instance, still_possible(ctx, instance.deadline_at))
    if record is None or instance.phase not in (Phase.PENDING, Phase.RUNNING):
        return
    if ctx.api.volumes is not None:
        volumes = existing_volumes(ctx.api.volumes, record.volumes, record.region)
        _give(ctx, instance.id, record.run_id, volumes)
    ctx.api.resources.adopt(record.run_id, instance.id)


def _guard_unlisted(ctx: CloudContext, record: MachineRecord) -> None:
    if not record.provider_id or ctx.api.guard is None:
        raise KedgeError(
            f"machine {record.id} can't be given its deadline at {ctx.traits.speaker} yet",
            why=f"it was requested a moment ago, and {ctx.traits.speaker} doesn't list it so far",
            fix="look again in a minute with `kedge status`",
        )
    ctx.records.keep_machine(replace(record, armed=True))
    deadline_at = still_possible(ctx, record.deadline_at)
    ctx.api.guard.arm(record.id, record.provider_id, record.region, deadline_at)


def still_possible(ctx: CloudContext, deadline_at: datetime) -> datetime:
    """Return a deadline, or the next one that a guard can be armed for, if the machine has outlived its own."""
    return max(deadline_at, ctx.clock.now() + ctx.api.guard.soonest) if ctx.api.guard is not None else deadline_at


def _arm(ctx: CloudContext, machine_id: str, instance: Instance, deadline_at: datetime) -> None:
    if ctx.api.guard is None:
        return
    record = ctx.records.machine(machine_id)
    if record is not None and not record.armed:
        ctx.records.keep_machine(replace(record, armed=True))
    ctx.api.guard.arm(machine_id, instance.id, instance.region, deadline_at)


def _give(ctx: CloudContext, instance_id: str, run_id: str, volumes: Sequence[DataVolume]) -> None:
    if ctx.api.volumes is not None:
        give_volumes(ctx.api.volumes, instance_id, run_id, volumes, ctx.clock)


def _await_accepted(ctx: CloudContext, order: MachineOrder, instance: Instance) -> None:
    """Wait until an instance's creation has ended. If it takes very long, the wait for the boot takes over."""
    record = ctx.records.machine(order.id)
    action = record.action if record is not None and record.provider_id == instance.id else ""
    begun = ctx.clock.now()

    def is_over() -> CreationStatus | None:
        status = ctx.api.creation_status(instance.id, instance.region, action)
        if status is CreationStatus.UNKNOWN:
            # The cloud removes an instance that it can't place.
            is_young = ctx.clock.now() - begun <= ctx.traits.settles_in
            return None if is_young else CreationStatus.FAILED
        return None if status is CreationStatus.RUNNING else status

    try:
        status = poll_until(is_over, ctx.traits.boots_in, ctx.clock)
    except KedgeError as err:
        # This only reads: neither missing permissions nor a timeout may end a machine.
        _log.warning("%s: %s", err.what, err.why)
        return
    if status is None:
        _log.info("the creation of %s %s is still in progress", ctx.traits.noun, instance.id)
    if status is CreationStatus.FAILED:
        raise NoCapacityError(
            f"{ctx.traits.name} failed to create {order.instance_type} in {order.region}",
            why=_why_not_started(ctx, order.id) or f"the creation of {instance.id} was accepted, and then failed",
            fix="try again later, or allow other types or regions",
        )


def _why_not_started(ctx: CloudContext, machine_id: str) -> str:
    """Return the cloud's reason for a failed start; empty if it hasn't failed, or the cloud doesn't tell."""
    record = ctx.records.machine(machine_id)
    try:
        end = ctx.api.why_ended(record, ctx.find(machine_id, record), ctx.clock.now())
    except KedgeError as err:
        _log.warning("%s: %s", err.what, err.why)
        return ""
    return end.says if end is not None and end.by is EndedBy.START else ""
