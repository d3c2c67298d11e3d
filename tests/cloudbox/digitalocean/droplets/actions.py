"""What is done to droplets: power, snapshots, and the record of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.cloudbox.digitalocean.account.call import not_found, number_of, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Action, Droplet, Image
from tests.cloudbox.digitalocean.account.views import show_action
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/actions", "actions:read")
def list_all(cloud: Cloud, call: Call) -> Answer:
    """List everything that was done, the latest first."""
    actions = sorted(cloud.account.actions.values(), key=lambda action: -action.id)
    return page(call, "actions", [show_action(cloud.account, action) for action in actions])


@routes.on("GET", "/actions/{action_id}", "actions:read")
def get_any(cloud: Cloud, call: Call) -> Answer:
    """Show one thing that was done."""
    wanted = number_of(call, "action_id")
    return answer_action(cloud, (one for one in cloud.account.actions.values() if one.id == wanted))


@routes.on("POST", "/droplets/actions", "droplet:update")
def act_by_tag(cloud: Cloud, call: Call) -> Answer:
    """Do something to all droplets that carry a tag."""
    tag = call.query.get("tag_name")
    droplets = [droplet for droplet in cloud.account.listed() if tag in droplet.tags]
    actions = [_act(cloud, droplet, call.body) for droplet in droplets]
    return Answer(status=201, body={"actions": [show_action(cloud.account, action) for action in actions]})


@routes.on("POST", "/droplets/{droplet_id}/actions", "droplet:update")
def act_by_id(cloud: Cloud, call: Call) -> Answer:
    """Do something to a droplet."""
    action = _act(cloud, cloud.account.droplet(number_of(call, "droplet_id")), call.body)
    return Answer(status=201, body={"action": show_action(cloud.account, action)})


@routes.on("GET", "/droplets/{droplet_id}/actions", "droplet:read")
def list_of_droplet(cloud: Cloud, call: Call) -> Answer:
    """List what was done to a droplet, the latest first."""
    actions = sorted(_of(cloud, call), key=lambda action: -action.id)
    return page(call, "actions", [show_action(cloud.account, action) for action in actions])


@routes.on("GET", "/droplets/{droplet_id}/actions/{action_id}", "droplet:read")
def get_of_droplet(cloud: Cloud, call: Call) -> Answer:
    """Show one thing that was done to a droplet."""
    wanted = number_of(call, "action_id")
    return answer_action(cloud, (action for action in _of(cloud, call) if action.id == wanted))


def answer_action(cloud: Cloud, found: Iterator[Action]) -> Answer:
    """Answer with the first of these actions.

    Raises:
        ApiError: there is none.
    """
    action = next(found, None)
    if action is None:
        raise not_found()
    return Answer(body={"action": show_action(cloud.account, action)})


def _of(cloud: Cloud, call: Call) -> list[Action]:
    droplet = cloud.account.droplet(number_of(call, "droplet_id"))
    key = ("droplet", droplet.id)
    return [action for action in cloud.account.actions.values() if (action.resource_type, action.resource_id) == key]


def _act(cloud: Cloud, droplet: Droplet, body: dict[str, Any]) -> Action:
    kind = str(body.get("type"))
    if kind not in _KINDS:
        raise unprocessable(f"the box doesn't do {kind!r}")
    _KINDS[kind](cloud, droplet, body)
    return cloud.account.begin(kind, droplet.id, "droplet", droplet.region)


def _power_off(_: Cloud, droplet: Droplet, __: dict[str, Any]) -> None:
    droplet.powered = False


def _power_on(_: Cloud, droplet: Droplet, __: dict[str, Any]) -> None:
    droplet.powered = True


def _restart(_: Cloud, droplet: Droplet, __: dict[str, Any]) -> None:
    if not droplet.powered:
        raise unprocessable("Droplet is currently powered off.")
    droplet.boots += 1


def _rename(_: Cloud, droplet: Droplet, body: dict[str, Any]) -> None:
    droplet.name = str(body.get("name") or droplet.name)


def _snapshot(cloud: Cloud, droplet: Droplet, body: dict[str, Any]) -> None:
    image = Image(
        id=cloud.account.new_number(),
        name=str(body.get("name") or f"{droplet.name}-snapshot"),
        created_at=cloud.clock.now(),
        regions=(droplet.region,),
        size_gigabytes=droplet.image.size_gigabytes,
        min_disk_size=droplet.size.disk,
        droplet_id=droplet.id,
        base=droplet.image.base,
    )
    cloud.account.images[image.id] = image


_KINDS: dict[str, Callable[[Cloud, Droplet, dict[str, Any]], None]] = {
    "power_off": _power_off,
    "shutdown": _power_off,
    "power_on": _power_on,
    "reboot": _restart,
    "power_cycle": _restart,
    "rename": _rename,
    "snapshot": _snapshot,
}
