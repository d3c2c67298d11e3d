"""Whether a droplet that the API has promised comes to be: its creation's action says so, after the answer (202)."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.droplets import read_droplet
from orchestrator.adapters.providers.digitalocean.failures import ApiError
from orchestrator.adapters.providers.digitalocean.view import SETTLES_IN
from orchestrator.core.errors import NoCapacityError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.adapters.providers.digitalocean.droplets import Droplet
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord
    from orchestrator.adapters.providers.digitalocean.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)

_CREATED_IN = timedelta(minutes=10)
_IN_PROGRESS, _ERRORED = "in-progress", "errored"
_NEW = "new"


def action_of(answer: Json) -> int:
    """Return the id of the creation's action from the answer to a creation; 0 where it has none."""
    actions = (answer.get("links") or {}).get("actions") or ()
    return next((int(each["id"]) for each in actions if each.get("rel") == "create"), 0)


def await_created(tools: Tools, order: MachineOrder, droplet: Droplet) -> None:
    """Wait until a droplet's creation is over. One that takes very long is left to the wait for its boot.

    Raises:
        NoCapacityError: its action ended `errored`; the droplet may be there all the same, and bill.
    """
    record = tools.records.machine(order.id)
    action_id = record.action_id if record is not None and record.droplet_id == droplet.id else 0
    begun = tools.clock.now()
    seen: list[str] = []

    def is_over() -> bool:
        seen[:] = [_creation_status(tools.api, action_id, droplet.id) or _unknown(tools.clock.now() - begun)]
        return seen != [_IN_PROGRESS]

    try:
        if not wait_until(tools.clock, _CREATED_IN, is_over):
            _log.info("the creation of droplet %s is still in progress", droplet.id)
    except ApiError as err:
        # It is only looked at: that a token may not, or that nobody answers, ends no machine.
        _log.warning("%s: %s", err.what, err.why)
    if seen == [_ERRORED]:
        raise NoCapacityError(
            f"{tools.site.name} failed to create {order.instance_type} in {order.region}",
            why=describe_failure(droplet.id),
            fix="try again later, or allow other types or regions",
        )


def has_failed(api: Api, record: MachineRecord | None, droplet: Droplet | None) -> bool:
    """Tell whether a droplet never comes to be, since the action of its creation ended `errored`.

    Args:
        api: the way to the account.
        record: this laptop's of the machine; without one nobody here knows the action.
        droplet: as the API shows it; None where it doesn't, as one that couldn't be placed has vanished.
    """
    if record is None or (droplet is not None and not _may_yet_fail(droplet, record)):
        return False
    try:
        action = _read_action(api, record.action_id, droplet.id if droplet is not None else record.droplet_id)
    except ApiError as err:
        # It is only looked at: that a token may not, or that nobody answers, ends no machine.
        _log.warning("%s: %s", err.what, err.why)
        return False
    return action is not None and action["status"] == _ERRORED


def describe_failure(droplet_id: int) -> str:
    """Say what became of a droplet whose creation has failed."""
    return f"the creation of droplet {droplet_id} was accepted, and then ended `errored`"


def _may_yet_fail(droplet: Droplet, record: MachineRecord) -> bool:
    return droplet.status == _NEW and droplet.order.attempt == record.attempt


def _creation_status(api: Api, action_id: int, droplet_id: int) -> str:
    """Return the status of a creation's action: in-progress, completed or errored; empty where nothing is known."""
    action = _read_action(api, action_id, droplet_id)
    if action is not None:
        return str(action["status"])
    droplet = read_droplet(api, droplet_id)
    if droplet is None:
        return ""
    return _IN_PROGRESS if droplet.status == _NEW else "completed"


def _unknown(waited: timedelta) -> str:
    """Say what it means that neither droplet nor action is known: one that can't be placed is removed again."""
    return _IN_PROGRESS if waited <= SETTLES_IN else _ERRORED


def _read_action(api: Api, action_id: int, droplet_id: int) -> Json | None:
    what = f"the creation of droplet {droplet_id} can't be looked at"
    if action_id:
        body = api.read(what, api.client.actions.get, action_id)
        return body["action"] if body else None
    # The answer that named it was lost; the droplet itself may be too young to be known.
    if not droplet_id or read_droplet(api, droplet_id) is None:
        return None
    listed = api.pages(what, api.client.droplet_actions.list, "actions", droplet_id=droplet_id)
    return next((action for action in listed if action["type"] == "create"), None)
