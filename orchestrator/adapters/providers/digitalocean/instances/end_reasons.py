"""Why a droplet ended: known only if it is powered off, or if its creation failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Instance, Phase
from orchestrator.adapters.providers.digitalocean.instances.actions import has_failed
from orchestrator.core.machine import EndedBy, MachineEnd

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.providers.digitalocean.api import Api


def why_ended(api: Api, record: MachineRecord | None, found: Sequence[Instance]) -> MachineEnd | None:
    """Say what ended a machine, or is ending it; None if it lives or was deleted."""
    droplet = found[0] if found else None
    if droplet is not None and droplet.phase is Phase.OFF:
        says = f"droplet {droplet.id} is powered off, and bills until it is deleted"
        return MachineEnd(by=EndedBy.ITSELF, says=says)
    if record is None or not has_failed(api, record, droplet):
        return None
    failed = droplet.id if droplet is not None else record.provider_id
    return MachineEnd(by=EndedBy.START, says=f"the creation of droplet {failed} was accepted, and then ended `errored`")
