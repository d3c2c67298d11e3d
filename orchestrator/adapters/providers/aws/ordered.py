"""An order in the words of those who carry it out: the machine's first boot, and the table of refusals."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orchestrator.adapters.first_boot import plan_first_boot
from orchestrator.adapters.job_user import END_COMMAND
from orchestrator.adapters.providers.aws.view import NAME
from orchestrator.core.offer import Offer

if TYPE_CHECKING:
    from orchestrator.adapters.boot import BootSpec
    from orchestrator.adapters.host_key import HostKey
    from orchestrator.adapters.providers.aws.attaching import DataVolume
    from orchestrator.core.machine import MachineOrder


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
    return plan_first_boot(
        order,
        key,
        (volume.boot for volume in volumes),
        provider=NAME,
        end_command=END_COMMAND,
        metadata=NAME,
        agent_sha256=hashlib.sha256(order.agent_archive).hexdigest(),
    )
