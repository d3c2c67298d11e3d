"""An order in the words of those who carry it out: the machine's first boot, and the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.boot import BootSpec
from orchestrator.adapters.ids import fit
from orchestrator.adapters.providers.digitalocean.ending import render_end_script
from orchestrator.adapters.providers.digitalocean.tags import droplet_tags
from orchestrator.adapters.providers.digitalocean.userdata import render_user_data
from orchestrator.core.job import AtEnd
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.wire import MachineConfig

if TYPE_CHECKING:
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
    machine = MachineConfig(
        machine=order.id,
        run=order.run_id,
        provider=provider,
        root=CLOUD_ROOT,
        # Both are filled in on the machine, at its first boot.
        created=0.0,
        deadline=0.0,
        usd_per_hour=str(order.usd_per_hour),
        store_url=order.store_url,
        end_command=ending.command,
    )
    return BootSpec(
        machine=machine,
        lifetime_seconds=order.lifetime_seconds,
        boot=order.boot,
        authorized_key=order.authorized_key,
        host_private_key=key.private,
        host_public_key=key.public,
        end_script=render_end_script(ending, ends),
        volumes=tuple(volume.boot for volume in volumes),
    )
