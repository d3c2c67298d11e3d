"""Volumes of block storage, what is done to them, and their snapshots."""

from __future__ import annotations

import re
from typing import Any

from tests.cloudbox.digitalocean.account.account import new_uuid
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Volume
from tests.cloudbox.digitalocean.account.views import show_volume
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.resources.tagging import take_tags
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}[a-z0-9]|[a-z]")
_MOST_GIB = 16 * 1024


@routes.on("GET", "/volumes", "block_storage:read")
def list_volumes(cloud: Cloud, call: Call) -> Answer:
    """List volumes, by region and by name where the call says so."""
    volumes = [volume for volume in cloud.account.volumes.values() if _matches(volume, call)]
    return page(call, "volumes", [show_volume(cloud.account, volume) for volume in volumes])


@routes.on("POST", "/volumes", "block_storage:create")
def create_volume(cloud: Cloud, call: Call) -> Answer:
    """Create a volume, blank or from a snapshot; a region has one of a name."""
    account, body = cloud.account, call.body
    name, region = str(body.get("name", "")), str(body.get("region", ""))
    if not _NAME.fullmatch(name):
        raise unprocessable("name must be lowercase alphanumeric, start with a letter and be at most 64 long")
    if region not in account.regions:
        raise unprocessable("invalid region")
    # fact: do-volumes-need-storage
    if "storage" not in account.regions[region].features:
        raise unprocessable("region does not support volumes")
    if any((one.name, one.region) == (name, region) for one in account.volumes.values()):
        raise ApiError(409, "conflict", "volume with same name already exists")
    if len(account.volumes) >= account.settings.volume_limit:
        raise unprocessable("failed to create volume: volume/snapshot count exceeded limit")
    snapshot = _snapshot(cloud, body.get("snapshot_id"), region)
    size = int(body.get("size_gigabytes") or 0)
    if not max(1, snapshot[1]) <= size <= _MOST_GIB:
        raise unprocessable("size_gigabytes must be at least the snapshot's, at least 1 and at most 16384")
    volume = Volume(
        id=new_uuid(),
        name=name,
        region=region,
        size_gigabytes=size,
        created_at=account.clock.now(),
        description=str(body.get("description") or ""),
        filesystem_type=str(body.get("filesystem_type") or ""),
        filesystem_label=str(body.get("filesystem_label") or ""),
        snapshot_id=snapshot[0],
        tags=take_tags(account, body.get("tags")),
    )
    account.volumes[volume.id] = volume
    account.file_away(f"do:volume:{volume.id}")
    return Answer(status=201, body={"volume": show_volume(account, volume)})


@routes.on("DELETE", "/volumes", "block_storage:delete")
def delete_volume_by_name(cloud: Cloud, call: Call) -> Answer:
    """Delete the volume of a name and a region."""
    if not call.query.get("name") or not call.query.get("region"):
        raise ApiError(400, "bad_request", "name and region are required")
    for volume in list(cloud.account.volumes.values()):
        if _matches(volume, call):
            delete(cloud, volume)
            return NO_CONTENT
    raise not_found()


@routes.on("GET", "/volumes/{volume_id}", "block_storage:read")
def get_volume(cloud: Cloud, call: Call) -> Answer:
    """Show a volume."""
    return Answer(body={"volume": show_volume(cloud.account, find(cloud, call.params["volume_id"]))})


@routes.on("DELETE", "/volumes/{volume_id}", "block_storage:delete")
def delete_volume(cloud: Cloud, call: Call) -> Answer:
    """Delete a volume that no droplet has."""
    delete(cloud, find(cloud, call.params["volume_id"]))
    return NO_CONTENT


def find(cloud: Cloud, volume_id: str) -> Volume:
    """Return a volume.

    Raises:
        ApiError: there is none of this id.
    """
    volume = cloud.account.volumes.get(volume_id)
    if volume is None:
        raise not_found()
    return volume


def delete(cloud: Cloud, volume: Volume) -> None:
    """Delete a volume.

    Raises:
        ApiError: a droplet has it.
    """
    if volume.droplet_id is not None:
        raise ApiError(409, "conflict", "failed to delete volume: the volume is attached to a droplet")
    del cloud.account.volumes[volume.id]
    cloud.account.forget(f"do:volume:{volume.id}")


def _matches(volume: Volume, call: Call) -> bool:
    wanted: dict[str, Any] = {"name": volume.name, "region": volume.region}
    return all(call.query.get(key, value) == value for key, value in wanted.items())


def _snapshot(cloud: Cloud, snapshot_id: str | None, region: str) -> tuple[str, int]:
    if not snapshot_id:
        return "", 0
    snapshot = cloud.account.volume_snapshots.get(snapshot_id)
    if snapshot is None or snapshot.region != region:
        raise unprocessable("snapshot not found in this region")
    return snapshot.id, snapshot.min_disk_size
