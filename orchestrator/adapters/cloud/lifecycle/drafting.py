"""Makes the record and the request of a creation: marks, user-data, idempotency token."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.cloud.boot.first_boot import plan_first_boot
from orchestrator.adapters.cloud.model import Draft, Marks
from orchestrator.adapters.cloud.records import MachineRecord

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.model import Chosen, Ready
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.adapters.ssh.host_key import HostKey
    from orchestrator.core.machine import MachineOrder


def make_record(
    ctx: CloudContext, order: MachineOrder, key: HostKey, *, gpus: int, ended: Sequence[str], ready: Ready[Any]
) -> MachineRecord:
    """Make the record for a request, before it is sent.

    Args:
        ctx: the cloud.
        order: the order.
        key: the machine's host key.
        gpus: the type's number of GPUs.
        ended: ids of the machine's instances that have ended.
        ready: the run's resources.
    """
    now = ctx.clock.now()
    return MachineRecord(
        id=order.id,
        run_id=order.run_id,
        region=order.region,
        attempt=ctx.idempotency.attempt(now),
        token=ctx.idempotency.token(order, ended, ready.token_parts),
        host_key=key.public,
        asked_at=now,
        lifetime_seconds=order.lifetime_seconds,
        usd_per_hour=order.usd_per_hour,
        # The run's record first: a cloud may name the account by a resource that is too new to be listed.
        account=ctx.records.run(order.run_id).account or ctx.api.account_id(),
        volumes=order.volumes,
        armed=ctx.api.guard is not None,
        gpus=gpus,
        private=order.site.is_private,
        jump_host=order.site.jump_host,
        proxy_command=order.site.proxy_command,
        rank=order.rank,
    )


def make_draft(
    ctx: CloudContext,
    order: MachineOrder,
    key: HostKey,
    *,
    record: MachineRecord,
    chosen: Chosen[Any],
    ready: Ready[Any],
    volumes: tuple[DataVolume, ...],
) -> Draft[Any, Any]:
    """Make the request that a record describes.

    Raises:
        KedgeError: its user-data is longer than the cloud allows.
    """
    return Draft(
        order=order,
        chosen=chosen,
        ready=ready,
        marks=_marks(order, record),
        user_data=_user_data(ctx, order, key, volumes, ssh_from=ready.ssh_from),
        volumes=volumes,
        token=record.token,
    )


def _marks(order: MachineOrder, record: MachineRecord) -> Marks:
    """Return the instance's marks."""
    return Marks(
        machine_id=order.id,
        run_id=order.run_id,
        attempt=record.attempt,
        asked_at=record.asked_at,
        lifetime_seconds=order.lifetime_seconds,
        usd_per_hour=order.usd_per_hour,
        extra=order.site.tags,
    )


def _user_data(
    ctx: CloudContext, order: MachineOrder, key: HostKey, volumes: Sequence[DataVolume], *, ssh_from: str
) -> bytes:
    """Render the machine's user-data; `ssh_from` as in `Ready`."""
    form = ctx.traits.boot
    end = ctx.api.self_end(volumes)
    spec = plan_first_boot(
        order,
        key,
        (volume.boot for volume in volumes),
        provider=ctx.traits.name,
        end_command=end.command,
        end_script=end.script,
        metadata=form.metadata,
        agent_sha256=hashlib.sha256(order.agent_archive).hexdigest() if form.carries_bootstrap else "",
    )
    return ctx.render(replace(spec, ssh_from=ssh_from), form)
