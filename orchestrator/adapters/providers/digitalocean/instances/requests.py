"""Renders the request for a droplet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.adapters.host.ids import fit
from orchestrator.adapters.providers.digitalocean.tags import droplet_tags

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.model import Draft
    from orchestrator.adapters.providers.digitalocean.api import Json
    from orchestrator.adapters.providers.digitalocean.market.images import Image


def render_request(draft: Draft[Image, str]) -> Json:
    """Render it; `draft.ready.native` is the fingerprint of the SSH key."""
    order = draft.order
    return {
        "name": fit(order.id.replace("_", "-")),
        "region": order.region,
        "size": order.instance_type,
        "image": draft.chosen.native.id,
        "ssh_keys": [draft.ready.native],
        "tags": droplet_tags(draft.marks),
        "user_data": draft.user_data.decode(),
        "monitoring": False,
        "ipv6": False,
        "volumes": [volume.id for volume in draft.volumes],
    }
