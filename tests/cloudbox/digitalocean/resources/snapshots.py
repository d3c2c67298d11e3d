"""Snapshots of volumes and of droplets: the latter are images too, and have their numbers."""

from __future__ import annotations

from typing import Any

from tests.cloudbox.digitalocean.account.account import new_uuid
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import VolumeSnapshot
from tests.cloudbox.digitalocean.account.views import show_droplet_snapshot, show_volume_snapshot
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.resources.tagging import take_tags
from tests.cloudbox.digitalocean.resources.volumes import find
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/snapshots", "snapshot:read")
def list_snapshots(cloud: Cloud, call: Call) -> Answer:
    """List all snapshots, or those of droplets or of volumes."""
    kind = call.query.get("resource_type")
    shown = [one for one in _all(cloud).values() if kind in (None, one["resource_type"])]
    return page(call, "snapshots", shown)


@routes.on("GET", "/snapshots/{snapshot_id}", "snapshot:read", "block_storage_snapshot:read")
def get_snapshot(cloud: Cloud, call: Call) -> Answer:
    """Show a snapshot."""
    return _show(cloud, call.params["snapshot_id"])


@routes.on("DELETE", "/snapshots/{snapshot_id}", "image:delete", "snapshot:delete")
def delete_snapshot(cloud: Cloud, call: Call) -> Answer:
    """Delete a snapshot of either kind."""
    return _delete(cloud, call.params["snapshot_id"])


@routes.on("GET", "/volumes/snapshots/{snapshot_id}", "block_storage_snapshot:read")
def get_volume_snapshot(cloud: Cloud, call: Call) -> Answer:
    """Show a volume's snapshot."""
    return _show(cloud, _of_volume(cloud, call))


@routes.on("DELETE", "/volumes/snapshots/{snapshot_id}", "block_storage_snapshot:delete")
def delete_volume_snapshot(cloud: Cloud, call: Call) -> Answer:
    """Delete a volume's snapshot."""
    return _delete(cloud, _of_volume(cloud, call))


@routes.on("GET", "/volumes/{volume_id}/snapshots", "block_storage_snapshot:read")
def list_volume_snapshots(cloud: Cloud, call: Call) -> Answer:
    """List the snapshots of a volume."""
    volume = find(cloud, call.params["volume_id"])
    snapshots = [one for one in cloud.account.volume_snapshots.values() if one.volume_id == volume.id]
    return page(call, "snapshots", [show_volume_snapshot(one) for one in snapshots])


@routes.on("POST", "/volumes/{volume_id}/snapshots", "block_storage_snapshot:create")
def create_volume_snapshot(cloud: Cloud, call: Call) -> Answer:
    """Keep what a volume holds now; a volume has one snapshot of a name."""
    account, body = cloud.account, call.body
    volume, name = find(cloud, call.params["volume_id"]), str(body.get("name", ""))
    if not name:
        raise unprocessable("name is required")
    if any((one.volume_id, one.name) == (volume.id, name) for one in account.volume_snapshots.values()):
        raise ApiError(409, "conflict", "snapshot with same name already exists")
    snapshot = VolumeSnapshot(
        id=new_uuid(),
        name=name,
        volume_id=volume.id,
        region=volume.region,
        size_gigabytes=float(volume.size_gigabytes) / 10,
        min_disk_size=volume.size_gigabytes,
        created_at=account.clock.now(),
        tags=take_tags(account, body.get("tags")),
    )
    account.volume_snapshots[snapshot.id] = snapshot
    return Answer(status=201, body={"snapshot": show_volume_snapshot(snapshot)})


def _all(cloud: Cloud) -> dict[str, dict[str, Any]]:
    images = [image for image in cloud.account.images.values() if image.public is None]
    of_volumes = {one.id: show_volume_snapshot(one) for one in cloud.account.volume_snapshots.values()}
    return {str(image.id): show_droplet_snapshot(image) for image in images} | of_volumes


def _show(cloud: Cloud, snapshot_id: str) -> Answer:
    shown = _all(cloud).get(snapshot_id)
    if shown is None:
        raise not_found()
    return Answer(body={"snapshot": shown})


def _delete(cloud: Cloud, snapshot_id: str) -> Answer:
    if snapshot_id in cloud.account.volume_snapshots:
        del cloud.account.volume_snapshots[snapshot_id]
    elif snapshot_id in _all(cloud):
        del cloud.account.images[int(snapshot_id)]
    else:
        raise not_found()
    return NO_CONTENT


def _of_volume(cloud: Cloud, call: Call) -> str:
    if call.params["snapshot_id"] not in cloud.account.volume_snapshots:
        raise not_found()
    return call.params["snapshot_id"]
