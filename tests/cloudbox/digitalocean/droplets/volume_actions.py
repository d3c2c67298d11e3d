"""Attaching, detaching and resizing of volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cloudbox.digitalocean.account.call import number_of, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Action, Droplet, Volume
from tests.cloudbox.digitalocean.account.views import show_action
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.droplets.actions import answer_action
from tests.cloudbox.digitalocean.resources.volumes import find
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_MOST_VOLUMES = 7
"""That a droplet can have."""
_MOST_GIB = 16 * 1024


@routes.on("POST", "/volumes/actions", "block_storage_action:create")
def act_by_name(cloud: Cloud, call: Call) -> Answer:
    """Do something to the volume that the body names, in the region that it names."""
    body = call.body
    for volume in cloud.account.volumes.values():
        if volume.name == body.get("volume_name") and volume.region == body.get("region", volume.region):
            return _act(cloud, volume, body)
    raise unprocessable("volume not found")


@routes.on("POST", "/volumes/{volume_id}/actions", "block_storage_action:create")
def act_by_id(cloud: Cloud, call: Call) -> Answer:
    """Do something to a volume."""
    return _act(cloud, find(cloud, call.params["volume_id"]), call.body)


@routes.on("GET", "/volumes/{volume_id}/actions", "block_storage_action:read")
def list_actions(cloud: Cloud, call: Call) -> Answer:
    """List what was done to a volume."""
    volume = find(cloud, call.params["volume_id"])
    return page(call, "actions", [show_action(cloud.account, action) for action in _of(cloud, volume)])


@routes.on("GET", "/volumes/{volume_id}/actions/{action_id}", "block_storage_action:read")
def get_action(cloud: Cloud, call: Call) -> Answer:
    """Show one thing that was done to a volume."""
    wanted = number_of(call, "action_id")
    volume = find(cloud, call.params["volume_id"])
    return answer_action(cloud, (action for action in _of(cloud, volume) if action.id == wanted))


def _act(cloud: Cloud, volume: Volume, body: dict[str, Any]) -> Answer:
    known: dict[str, Callable[[Cloud, Volume, dict[str, Any]], None]]
    known = {"attach": _attach, "detach": _detach, "resize": _resize}
    kind = str(body.get("type"))
    if kind not in known:
        raise unprocessable(f"unknown action {kind!r}")
    known[kind](cloud, volume, body)
    action = cloud.account.begin(f"{kind}_volume", 0, "backend", volume.region)
    cloud.account.volume_actions[action.id] = volume.id
    return Answer(status=202, body={"action": show_action(cloud.account, action)})


def _attach(cloud: Cloud, volume: Volume, body: dict[str, Any]) -> None:
    droplet = _droplet(cloud, body)
    if droplet.region != volume.region:
        raise unprocessable("The volume and the droplet are in different regions")
    if volume.droplet_id is not None:
        raise unprocessable("The volume is already attached to a droplet")
    if len(droplet.volume_ids) >= _MOST_VOLUMES:
        raise unprocessable(f"A droplet can have at most {_MOST_VOLUMES} volumes")
    volume.droplet_id = droplet.id
    droplet.volume_ids.append(volume.id)


def _detach(cloud: Cloud, volume: Volume, body: dict[str, Any]) -> None:
    droplet = _droplet(cloud, body)
    if volume.droplet_id != droplet.id:
        raise unprocessable("The volume is not attached to this droplet")
    volume.droplet_id = None
    droplet.volume_ids.remove(volume.id)


def _resize(cloud: Cloud, volume: Volume, body: dict[str, Any]) -> None:
    size = int(body.get("size_gigabytes") or 0)
    if not volume.size_gigabytes < size <= _MOST_GIB:
        raise unprocessable("A volume can only grow, up to 16384 GiB")
    volume.size_gigabytes = size


def _droplet(cloud: Cloud, body: dict[str, Any]) -> Droplet:
    for droplet in cloud.account.present():
        if droplet.id == body.get("droplet_id"):
            return droplet
    raise unprocessable("droplet not found")


def _of(cloud: Cloud, volume: Volume) -> list[Action]:
    account = cloud.account
    return [account.actions[number] for number, volume_id in account.volume_actions.items() if volume_id == volume.id]
