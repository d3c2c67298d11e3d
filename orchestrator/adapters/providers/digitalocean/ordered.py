"""An order in the words of those who carry it out: the machine's first boot, and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.first_boot import plan_first_boot
from orchestrator.adapters.ids import fit
from orchestrator.adapters.providers.digitalocean.ending import render_end_script
from orchestrator.adapters.providers.digitalocean.tags import droplet_tags
from orchestrator.adapters.providers.digitalocean.userdata import render_user_data
from orchestrator.core.job import AtEnd

if TYPE_CHECKING:
    from orchestrator.adapters.boot import BootSpec
    from orchestrator.adapters.host_key import HostKey
    from orchestrator.adapters.providers.digitalocean.api import Json
    from orchestrator.adapters.providers.digitalocean.ending import SelfDelete
    from orchestrator.adapters.providers.digitalocean.images import Image
    from orchestrator.adapters.providers.digitalocean.volumes import DataVolume
    from orchestrator.core.machine import MachineOrder


def render_request(order: MachineOrder, *, image: Image, key: str, attempt: str, spec: BootSpec) -> Json:
    """Write the request for one droplet.

    Args:
        order: what is wanted.
        image: what it boots.
        key: fingerprint of the SSH key.
        attempt: see `tags.OrderTag`.
        spec: of its first boot; its volumes are named by `attached`.
    """
    return {
        "name": fit(order.id.replace("_", "-")),
        "region": order.region,
        "size": order.instance_type,
        "image": image.id,
        "ssh_keys": [key],
        "tags": droplet_tags(
            machine_id=order.id,
            run_id=order.run_id,
            attempt=attempt,
            lifetime_seconds=order.lifetime_seconds,
            usd_per_hour=order.usd_per_hour,
        ),
        "user_data": render_user_data(spec),
        "monitoring": False,
        "ipv6": False,
    }


def boot_spec(
    order: MachineOrder, provider: str, key: HostKey, ending: SelfDelete, volumes: Sequence[DataVolume]
) -> BootSpec:
    """Say what the machine must know at its first boot; its agent and its secrets are brought to it."""
    ends = [volume.id for volume in volumes if volume.ours and volume.spec.at_end is AtEnd.DELETE]
    return plan_first_boot(
        order,
        key,
        (volume.boot for volume in volumes),
        provider=provider,
        end_command=ending.command,
        end_script=render_end_script(ending, ends),
    )
