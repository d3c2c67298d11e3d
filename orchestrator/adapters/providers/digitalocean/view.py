"""What a droplet looks like as a machine of kedge's.

One that is powered off counts as ending: it computes nothing and bills in full, so that only its end settles it. A
machine that this laptop has no record of can be seen and ended; its address isn't given, since nobody here knows its
host key.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.sizes import billed_for_at_least
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_ROOT, CLOUD_USER, Machine, MachineState, SshAddress

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.droplets import Droplet
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord

SETTLES_IN = timedelta(seconds=90)
"""From its answer on: how long the API may not know a droplet that it has said it makes (seen for up to a minute)."""

UNCLEAR_FOR = timedelta(minutes=15)
"""From the last request on, where no answer has told whether it made the machine: as long does it count as one. Much
longer than listing takes, since a second machine would be the price of giving it up too early."""

_SSH = 22
_STATES = {
    "new": MachineState.BOOTING,
    "active": MachineState.READY,
    "off": MachineState.ENDING,
    "archive": MachineState.ENDING,
}


def see_machine(droplet: Droplet, record: MachineRecord | None, provider: str, key_file: Path) -> Machine:
    """Describe a droplet; the record is this laptop's, if it has one."""
    own = record if record is not None and record.attempt == droplet.order.attempt else None
    state = _STATES.get(droplet.status, MachineState.UNKNOWN)
    if own is not None and own.ended:
        # Its deletion is confirmed; until it is carried out, or should it come back, it isn't gone.
        state = MachineState.ENDING
    if state is MachineState.READY and not droplet.ipv4:
        state = MachineState.BOOTING
    return Machine(
        id=droplet.machine_id,
        run_id=droplet.run_id,
        provider=provider,
        provider_id=str(droplet.id),
        state=state,
        root=CLOUD_ROOT,
        created_at=droplet.created_at,
        deadline_at=droplet.created_at + droplet.order.lifetime,
        usd_per_hour=droplet.order.usd_per_hour,
        address=_address(droplet, own, key_file),
        region=droplet.region,
        gpus=own.gpus if own else 0,
        billed_for_at_least=billed_for_at_least(own.gpus if own else 0),
    )


def see_unlisted(record: MachineRecord, provider: str, now: datetime) -> Machine | None:
    """Describe a machine that was asked for and that the API doesn't list; None once it would have listed it."""
    if not may_exist(record, now):
        return None
    return Machine(
        id=record.id,
        run_id=record.run_id,
        provider=provider,
        provider_id=str(record.droplet_id or ""),
        state=MachineState.BOOTING if record.droplet_id else MachineState.UNKNOWN,
        root=CLOUD_ROOT,
        created_at=record.asked_at,
        deadline_at=record.deadline_at,
        usd_per_hour=record.usd_per_hour,
        region=record.region,
        gpus=record.gpus,
        billed_for_at_least=billed_for_at_least(record.gpus),
    )


def may_exist(record: MachineRecord, now: datetime) -> bool:
    """Tell whether a machine that the API doesn't list may be there all the same."""
    if record.ended:
        return False
    if record.unclear_since is not None:
        return now - record.unclear_since <= UNCLEAR_FOR
    return now - record.young_from <= SETTLES_IN


def _address(droplet: Droplet, record: MachineRecord | None, key_file: Path) -> SshAddress | None:
    if record is None or not droplet.ipv4:
        return None
    return SshAddress(
        host=droplet.ipv4,
        port=_SSH,
        user=CLOUD_USER,
        admin=CLOUD_ADMIN,
        host_key=record.host_key,
        key_file=str(key_file),
        provisional=not record.pinned,
    )
