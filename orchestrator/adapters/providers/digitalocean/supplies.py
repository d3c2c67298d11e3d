"""What a droplet is brought over its first connection: agent, Spaces' keys, and the token that deletes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.adapters.agent_archive import agent_archive
from orchestrator.adapters.providers.digitalocean.ending import SelfDelete, secret_files
from orchestrator.adapters.supplies import pack_supplies
from orchestrator.core.machine import CLOUD_ROOT

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.spaces import Spaces
    from orchestrator.core.ports import Supplies


def droplet_supplies(ending: SelfDelete, spaces: Spaces | None) -> Supplies:
    """Pack them.

    Raises:
        BadRequestError: the certificates of the API can't be read.
    """
    return pack_supplies(
        CLOUD_ROOT,
        agent_archive(),
        for_user=spaces.secret_files if spaces else {},
        for_root=secret_files(ending),
    )
