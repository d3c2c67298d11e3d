"""An order in the words of those who carry it out: the machine's first boot, and the table of refusals."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.userdata import BootSpec
from orchestrator.adapters.providers.aws.view import NAME
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.offer import Offer
from orchestrator.core.wire import MachineConfig

if TYPE_CHECKING:
    from orchestrator.adapters.host_key import HostKey
    from orchestrator.adapters.providers.aws.attaching import DataVolume
    from orchestrator.core.machine import MachineOrder

_POWER_OFF = ("sudo", "systemctl", "poweroff")


def offer_of(order: MachineOrder) -> Offer:
    """Say what was asked for; how large it is doesn't matter to a refusal."""
    return Offer(
        provider=NAME,
        region=order.region,
        zone=order.zone,
        instance_type=order.instance_type,
        accelerators=None,
        gpu_memory_gib=0,
        cpus=0,
        memory_gib=0,
        disk_gib=order.disk_gib or 0,
        usd_per_hour=order.usd_per_hour,
        spot=order.spot,
    )


def boot_spec(order: MachineOrder, key: HostKey, volumes: tuple[DataVolume, ...]) -> BootSpec:
    """Say what the machine must know at its first boot."""
    machine = MachineConfig(
        machine=order.id,
        run=order.run_id,
        provider=NAME,
        root=CLOUD_ROOT,
        # Both are filled in on the machine, at its first boot.
        created=0.0,
        deadline=0.0,
        usd_per_hour=str(order.usd_per_hour),
        store_url=order.store_url,
        end_command=_POWER_OFF,
        metadata=NAME,
    )
    return BootSpec(
        machine=machine,
        lifetime_seconds=order.lifetime_seconds,
        boot=order.boot,
        authorized_key=order.authorized_key,
        host_private_key=key.private,
        host_public_key=key.public,
        agent_sha256=hashlib.sha256(order.agent_archive).hexdigest(),
        volumes=tuple(volume.boot for volume in volumes),
    )
