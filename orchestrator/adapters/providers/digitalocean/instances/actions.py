"""The state of an accepted creation (202): its action says later whether the droplet was really created."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import CreationStatus, Instance, Phase, is_made_by
from orchestrator.adapters.providers.digitalocean.instances.droplets import read_droplet
from orchestrator.adapters.rest.failures import ApiError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.providers.digitalocean.api import Api, Json

_log = logging.getLogger(__name__)

_STATUSES = {"in-progress": CreationStatus.RUNNING, "errored": CreationStatus.FAILED}


def action_of(answer: Json) -> str:
    """Return the id of the action from the answer to a creation; empty if it has none."""
    actions = (answer.get("links") or {}).get("actions") or ()
    return next((str(each["id"]) for each in actions if each.get("rel") == "create"), "")


def creation_status(api: Api, droplet_id: str, action_id: str) -> CreationStatus:
    """Read the state of a creation from its action, else from the droplet itself.

    Args:
        api: the account's API.
        droplet_id: empty if the answer wasn't read.
        action_id: empty if the answer wasn't read.

    Raises:
        ApiError: the API refuses, or doesn't answer.
    """
    what = f"the creation of droplet {droplet_id} can't be read"
    action = _read_action(api, what, action_id) if action_id else None
    if action is None:
        # The droplet may be too young to be known.
        droplet = read_droplet(api, droplet_id) if droplet_id else None
        if droplet is None:
            return CreationStatus.UNKNOWN
        action = None if action_id else _find_action(api, what, droplet_id)
        if action is None:
            return CreationStatus.RUNNING if droplet.phase is Phase.PENDING else CreationStatus.DONE
    return _STATUSES.get(action["status"], CreationStatus.DONE)


def has_failed(api: Api, record: MachineRecord | None, droplet: Instance | None) -> bool:
    """Tell whether a creation has failed: its action ended `errored`.

    Args:
        api: the account's API.
        record: this laptop's record of the machine, which has the action; None without one.
        droplet: as the API shows it; None if it doesn't: a droplet that couldn't be placed vanishes.
    """
    if record is None or (droplet is not None and not _may_yet_fail(droplet, record)):
        return False
    try:
        status = creation_status(api, droplet.id if droplet is not None else record.provider_id, record.action)
    except ApiError as err:
        # This only reads: neither a missing scope nor a timeout may end a machine.
        _log.warning("%s: %s", err.what, err.why)
        return False
    return status is CreationStatus.FAILED


def _may_yet_fail(droplet: Instance, record: MachineRecord) -> bool:
    return droplet.phase is Phase.PENDING and is_made_by(droplet, record)


def _read_action(api: Api, what: str, action_id: str) -> Json | None:
    body = api.read(what, api.client.actions.get, int(action_id))
    return body["action"] if body else None


def _find_action(api: Api, what: str, droplet_id: str) -> Json | None:
    listed = api.pages(what, api.client.droplet_actions.list, "actions", droplet_id=int(droplet_id))
    return next((action for action in listed if action["type"] == "create"), None)
