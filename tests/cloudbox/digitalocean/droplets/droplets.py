"""Droplets: listed, shown, created and destroyed."""

from __future__ import annotations

from typing import Any

from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, number_of, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.account.views import show_droplet, show_droplet_snapshot, show_firewall
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.droplets.creating import create
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/droplets", "droplet:read")
def list_droplets(cloud: Cloud, call: Call) -> Answer:
    """List droplets: those without GPUs unless `type` says gpus, whatever the tag.

    fact: do-gpus-not-listed, fact: do-gpus-not-listed-by-tag
    """
    account, query = cloud.account, call.query
    if "tag_name" in query and ("type" in query or "name" in query):
        raise ApiError(400, "bad_request", "tag_name can not be combined with type or name")
    with_gpus = query.get("type") == "gpus"
    found = [droplet for droplet in account.listed() if bool(droplet.size.gpus) == with_gpus]
    if tag := query.get("tag_name"):
        found = [droplet for droplet in found if tag in droplet.tags]
    if name := query.get("name"):
        found = [droplet for droplet in found if droplet.name == name]
    return page(call, "droplets", [show_droplet(account, droplet) for droplet in found])


@routes.on("POST", "/droplets", "droplet:create")
def create_droplets(cloud: Cloud, call: Call) -> Answer:
    """Create one droplet, or several of the same kind."""
    account, body = cloud.account, call.body
    droplets = create(cloud, body)
    actions = []
    for droplet in droplets:
        action = account.begin("create", droplet.id, "droplet", droplet.region)
        action.done_at = max(action.done_at, droplet.active_at)
        actions.append({"id": action.id, "rel": "create", "href": f"{call.origin}/v2/actions/{action.id}"})
    shown = [show_droplet(account, droplet) for droplet in droplets]
    made: dict[str, Any] = {"droplets": shown} if "names" in body else {"droplet": shown[0]}
    return Answer(status=202, body={**made, "links": {"actions": actions}})


@routes.on("DELETE", "/droplets", "droplet:delete")
def destroy_by_tag(cloud: Cloud, call: Call) -> Answer:
    """Destroy all droplets that carry a tag, GPU droplets among them."""
    if not call.query.get("tag_name"):
        raise ApiError(400, "bad_request", "tag_name is required")
    for droplet in cloud.account.present():
        if call.query["tag_name"] in droplet.tags:
            destroy(cloud, droplet)
    return NO_CONTENT


@routes.on("GET", "/droplets/{droplet_id}", "droplet:read")
def get_droplet(cloud: Cloud, call: Call) -> Answer:
    """Show a droplet."""
    droplet = cloud.account.droplet(number_of(call, "droplet_id"))
    return Answer(body={"droplet": show_droplet(cloud.account, droplet)})


@routes.on("DELETE", "/droplets/{droplet_id}", "droplet:delete")
def destroy_droplet(cloud: Cloud, call: Call) -> Answer:
    """Destroy a droplet; its volumes and reserved addresses stay. fact: do-volumes-stay."""
    destroy(cloud, cloud.account.droplet(number_of(call, "droplet_id")))
    return NO_CONTENT


@routes.on("GET", "/droplets/{droplet_id}/snapshots", "droplet:read")
def list_snapshots(cloud: Cloud, call: Call) -> Answer:
    """List the snapshots of a droplet."""
    droplet = cloud.account.droplet(number_of(call, "droplet_id"))
    images = [image for image in cloud.account.images.values() if image.droplet_id == droplet.id]
    return page(
        call, "snapshots", [{**show_droplet_snapshot(image), "id": image.id, "type": "snapshot"} for image in images]
    )


@routes.on("GET", "/droplets/{droplet_id}/firewalls", "firewall:read")
def list_firewalls(cloud: Cloud, call: Call) -> Answer:
    """List the firewalls that concern a droplet, by its id or by a tag."""
    droplet = cloud.account.droplet(number_of(call, "droplet_id"))
    firewalls = [firewall for firewall in cloud.account.firewalls.values() if firewall.concerns(droplet)]
    return page(call, "firewalls", [show_firewall(cloud.account, firewall) for firewall in firewalls])


def destroy(cloud: Cloud, droplet: Droplet) -> None:
    """Begin a droplet's end; it is over when the box's clock is past the seconds that it takes.

    Raises:
        ApiError: it has begun already.
    """
    now, settings = cloud.clock.now(), cloud.account.settings
    # fact: do-delete-new-without-effect
    if droplet.is_being_created(now) and not settings.deletes_new:
        return
    # fact: do-delete-in-progress
    if droplet.deleted_at is not None and droplet.reappears_at is None:
        raise unprocessable("a destroy is already in progress")
    droplet.deleted_at = now + settings.deletion_seconds
    droplet.reappears_at = None
