"""Maps a cloud's instances to kedge's machines.

An instance that is powered off counts as ending: it computes nothing and still costs money until it is deleted. A
machine without a record on this computer can be listed and ended, but gets no address: its host key isn't known here.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Instance, Phase, is_made_by
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_ROOT, CLOUD_USER, Machine, MachineState, SshAddress

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.api import Traits
    from orchestrator.adapters.cloud.records import MachineRecord

_SSH = 22
_STATES = {
    Phase.PENDING: MachineState.BOOTING,
    Phase.RUNNING: MachineState.READY,
    Phase.OFF: MachineState.ENDING,
    Phase.ENDING: MachineState.ENDING,
    Phase.GONE: MachineState.GONE,
    Phase.UNKNOWN: MachineState.UNKNOWN,
}


def map_instance(traits: Traits, instance: Instance, record: MachineRecord | None, key_file: Path) -> Machine:
    """Map an instance to a machine.

    Args:
        traits: of its cloud.
        instance: as the cloud lists it.
        record: this computer's record of the machine, if any; ignored if another request made the instance.
        key_file: the laptop's private key.
    """
    own = record if record is not None and is_made_by(instance, record) else None
    gpus = own.gpus if own else 0
    return Machine(
        id=instance.machine_id,
        run_id=instance.run_id,
        provider=traits.name,
        provider_id=instance.id,
        state=_state(instance, own),
        root=CLOUD_ROOT,
        created_at=instance.created_at,
        deadline_at=instance.deadline_at,
        usd_per_hour=instance.usd_per_hour,
        address=_address(instance, own, key_file) if own else None,
        region=instance.region,
        gpus=gpus,
        billed_for_at_least=traits.billed_for_at_least(gpus),
        rank=own.rank if own else 0,
        private_address=instance.private_host,
    )


def map_unlisted(traits: Traits, record: MachineRecord, now: datetime) -> Machine | None:
    """Describe a requested machine that its cloud doesn't list; None once the cloud would have listed it."""
    if not traits.may_still_exist(record, now):
        return None
    return Machine(
        id=record.id,
        run_id=record.run_id,
        provider=traits.name,
        provider_id=record.provider_id,
        state=MachineState.BOOTING if record.provider_id else MachineState.UNKNOWN,
        root=CLOUD_ROOT,
        created_at=record.asked_at,
        deadline_at=record.deadline_at,
        usd_per_hour=record.usd_per_hour,
        region=record.region,
        gpus=record.gpus,
        billed_for_at_least=traits.billed_for_at_least(record.gpus),
        rank=record.rank,
    )


def _state(instance: Instance, own: MachineRecord | None) -> MachineState:
    if own is not None and own.ended:
        # Its deletion is confirmed, and a listing that lags still shows it.
        return MachineState.ENDING
    state = _STATES[instance.phase]
    return MachineState.BOOTING if state is MachineState.READY and not _host(instance, own) else state


def _address(instance: Instance, own: MachineRecord, key_file: Path) -> SshAddress | None:
    host = _host(instance, own)
    if not host:
        return None
    return SshAddress(
        host=host,
        port=_SSH,
        user=CLOUD_USER,
        admin=CLOUD_ADMIN,
        host_key=own.host_key,
        key_file=str(key_file),
        provisional=not own.pinned,
        jump_host=own.jump_host,
        proxy_command=own.proxy_command,
    )


def _host(instance: Instance, own: MachineRecord | None) -> str:
    return instance.private_host if own is not None and own.private else instance.host
