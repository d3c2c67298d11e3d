"""Makes the `BootSpec` of an order, the same way for every cloud."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.boot.cloud_config import ARM_COMMAND, BootSpec, BootVolume, plan_margin
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.protocol.wire import MachineConfig

if TYPE_CHECKING:
    from orchestrator.adapters.ssh.host_key import HostKey
    from orchestrator.core.machine import MachineOrder


def plan_first_boot(
    order: MachineOrder,
    key: HostKey,
    volumes: Iterable[BootVolume],
    *,
    provider: str,
    end_command: tuple[str, ...],
    metadata: str = "",
    agent_sha256: str = "",
    end_script: str = "",
) -> BootSpec:
    """Collect what the machine must know at its first boot; `BootSpec` and `MachineConfig` describe each field."""
    machine = MachineConfig(
        machine=order.id,
        run=order.run_id,
        provider=provider,
        root=CLOUD_ROOT,
        # Both are filled in on the machine, at its first boot.
        created=0.0,
        deadline_at=0.0,
        usd_per_hour=str(order.usd_per_hour),
        store_url=order.store_url,
        end_command=end_command,
        metadata=metadata,
        rank=order.rank,
        arm_command=ARM_COMMAND,
        margin=plan_margin(order.lifetime_seconds),
    )
    return BootSpec(
        machine=machine,
        lifetime_seconds=order.lifetime_seconds,
        boot=order.boot,
        authorized_key=order.authorized_key,
        host_private_key=key.private,
        host_public_key=key.public,
        agent_sha256=agent_sha256,
        sudo=order.sudo,
        end_script=end_script,
        volumes=tuple(volumes),
    )
