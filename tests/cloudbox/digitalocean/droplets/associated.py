"""The end of droplets with what is associated with them: volumes, snapshots, reserved addresses."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tests.cloudbox.digitalocean.account.account import Account, Destruction
from tests.cloudbox.digitalocean.account.call import ApiError, not_found, number_of
from tests.cloudbox.digitalocean.account.clock import iso
from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.droplets import reserved_ips
from tests.cloudbox.digitalocean.droplets.droplets import destroy
from tests.cloudbox.digitalocean.resources import volumes
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_BASE = "/droplets/{droplet_id}/destroy_with_associated_resources"
_SCOPES = (
    "droplet:delete",
    "block_storage:delete",
    "block_storage_snapshot:delete",
    "image:delete",
    "reserved_ip:delete",
)
_KINDS = ("reserved_ips", "floating_ips", "snapshots", "volumes", "volume_snapshots")


@routes.on("GET", _BASE, "droplet:read")
def list_associated(cloud: Cloud, call: Call) -> Answer:
    """List what would be destroyed together with a droplet."""
    found = _associated(cloud.account, cloud.account.droplet(number_of(call, "droplet_id")))
    shown = {kind: [{"id": one, "name": name, "cost": "0.00"} for one, name in found[kind].items()] for kind in _KINDS}
    return Answer(body=shown)


@routes.on("DELETE", f"{_BASE}/selective", *_SCOPES)
def destroy_some(cloud: Cloud, call: Call) -> Answer:
    """Destroy a droplet with those of its resources that are named."""
    body = call.body
    return _destroy(cloud, call, {kind: set(map(str, body.get(kind) or ())) for kind in _KINDS})


@routes.on("DELETE", f"{_BASE}/dangerous", *_SCOPES)
def destroy_all(cloud: Cloud, call: Call) -> Answer:
    """Destroy a droplet with everything that is associated with it; a header has to say that this is meant."""
    if call.headers.get("x-dangerous", "").lower() != "true":
        raise ApiError(400, "bad_request", "the header X-Dangerous must be true")
    found = _associated(cloud.account, cloud.account.droplet(number_of(call, "droplet_id")))
    return _destroy(cloud, call, found)


@routes.on("GET", f"{_BASE}/status", "droplet:delete")
def get_status(cloud: Cloud, call: Call) -> Answer:
    """Show how the last such end of a droplet went."""
    number = number_of(call, "droplet_id")
    done = cloud.account.destructions.get(number)
    if done is None:
        raise not_found()
    ended = {"destroyed_at": iso(done.at), "error_message": ""}
    gone = {kind: [{"id": one, "name": name, **ended} for one, name in done.gone[kind].items()] for kind in _KINDS}
    droplet = {"id": str(number), "name": done.name, **ended}
    return Answer(body={"droplet": droplet, "resources": gone, "completed_at": iso(done.at), "failures": 0})


@routes.on("POST", f"{_BASE}/retry", *_SCOPES)
def retry(cloud: Cloud, call: Call) -> Answer:
    """Try again what failed: in the box nothing of it fails."""
    if number_of(call, "droplet_id") not in cloud.account.destructions:
        raise not_found()
    return Answer(status=202)


def _associated(account: Account, droplet: Droplet) -> dict[str, dict[str, str]]:
    held = [account.volumes[volume_id] for volume_id in droplet.volume_ids]
    return {
        "reserved_ips": {one.ip: one.ip for one in account.reserved_ips.values() if one.droplet_id == droplet.id},
        "floating_ips": {},
        "snapshots": {str(one.id): one.name for one in account.images.values() if one.droplet_id == droplet.id},
        "volumes": {volume.id: volume.name for volume in held},
        "volume_snapshots": {
            one.id: one.name for one in account.volume_snapshots.values() if one.volume_id in droplet.volume_ids
        },
    }


def _destroy(cloud: Cloud, call: Call, wanted: Mapping[str, Collection[str]]) -> Answer:
    account = cloud.account
    droplet = account.droplet(number_of(call, "droplet_id"))
    found = _associated(account, droplet)
    gone = {kind: {one: name for one, name in found[kind].items() if one in wanted[kind]} for kind in _KINDS}
    for ip in gone["reserved_ips"]:
        reserved_ips.delete(account, account.reserved_ips[ip])
    for number in gone["snapshots"]:
        del account.images[int(number)]
    for snapshot_id in gone["volume_snapshots"]:
        del account.volume_snapshots[snapshot_id]
    for volume_id in gone["volumes"]:
        account.volumes[volume_id].droplet_id = None
        droplet.volume_ids.remove(volume_id)
        volumes.delete(cloud, account.volumes[volume_id])
    destroy(cloud, droplet)
    account.destructions[droplet.id] = Destruction(name=droplet.name, at=account.clock.now(), gone=gone)
    return Answer(status=202)
