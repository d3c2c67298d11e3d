"""What a droplet is brought over its first connection: agent, Spaces' keys, and the token that deletes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.agent_archive import agent_archive
from orchestrator.adapters.providers.digitalocean.ending import SelfDelete, secret_files
from orchestrator.adapters.remote.keys import derive_secret
from orchestrator.adapters.supplies import pack_supplies
from orchestrator.core.machine import CLOUD_ROOT

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.spaces import Spaces
    from orchestrator.core.ports import Supplies


def droplet_supplies(ending: SelfDelete, spaces: Spaces | None, *, key_file: Path, run_id: str) -> Supplies:
    """Pack them.

    Args:
        ending: what the droplet deletes itself with.
        spaces: the bucket.
        key_file: the laptop's private key, of which the run's secret is made.
        run_id: whose droplet it is.

    Raises:
        BadRequestError: the certificates of the API can't be read.
    """
    return pack_supplies(
        CLOUD_ROOT,
        agent_archive(),
        for_user=spaces.secret_files(derive_secret(key_file, f"seal {run_id}")) if spaces else {},
        for_root=secret_files(ending),
    )
