"""What ended a droplet: the API says so of one that is powered off, and of one that it failed to create."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.creating import describe_failure, has_failed
from orchestrator.adapters.providers.digitalocean.ending_droplets import find_droplet
from orchestrator.core.machine import EndedBy, MachineEnd

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.tools import Tools


def why_ended(tools: Tools, machine_id: str) -> MachineEnd | None:
    """Say what ended a machine, or is ending it; None for one that lives, and for one that was deleted.

    Raises:
        ApiError: the API doesn't tell.
    """
    record = tools.records.machine(machine_id)
    droplet = find_droplet(tools, machine_id, record)
    if droplet is not None and droplet.status == "off":
        says = f"droplet {droplet.id} is powered off, and bills until it is deleted"
        return MachineEnd(by=EndedBy.ITSELF, says=says)
    if record is None or not has_failed(tools.api, record, droplet):
        return None
    return MachineEnd(by=EndedBy.START, says=describe_failure(droplet.id if droplet is not None else record.droplet_id))
