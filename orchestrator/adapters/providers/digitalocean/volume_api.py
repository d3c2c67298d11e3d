"""`DoVolumes`: the `VolumeApi` of DigitalOcean.

A volume is found by its tag `kedge-volume:NAME`. Volumes that kedge created also have the tag `kedge-created`: a
machine may format only those, and only if they are blank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.refusals import Unclear
from orchestrator.adapters.cloud.volumes.model import ListedVolume, VolumeTraits
from orchestrator.adapters.host.ids import fit
from orchestrator.adapters.providers.digitalocean.market.offers import USD_PER_GIB_HOUR
from orchestrator.adapters.providers.digitalocean.tagging import put_tag, take_tag
from orchestrator.adapters.providers.digitalocean.tags import (
    CREATED,
    KEDGE,
    at_end_of,
    run_of,
    run_tag,
    use_tags,
    use_tags_of,
    volume_of,
    volume_tag,
)
from orchestrator.adapters.rest.failures import UnclearError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.core.errors import KedgeError
    from orchestrator.core.job import AtEnd, Resources, VolumeSpec
    from orchestrator.core.machine import MachineOrder

_NO_NAME = re.compile(r"[^a-z0-9-]+")


def volume_name(name: str) -> str:
    """Return a volume's name at the API: lower-case letters, digits and dashes, a letter first, 64 at most."""
    plain = _NO_NAME.sub("-", name.lower()).strip("-")
    return fit(plain if plain == name and plain[:1].isalpha() else f"kedge-{plain}")


class DoVolumes:
    """The data volumes of one account."""

    traits = VolumeTraits(speaker="the API", place_word="region", attaches_at_birth=True)

    def __init__(self, api: Api) -> None:
        self._api = api

    def place_of(self, order: MachineOrder) -> str:
        """Return the region: a volume serves droplets of its region."""
        return order.region

    def regions_of(self, _resources: Resources) -> Sequence[str]:
        """Return an empty string, which stands for all regions: one listing covers them."""
        return ("",)

    def is_closed(self, _err: KedgeError) -> bool:
        """Return False: no region is queried separately."""
        return False

    def device_of(self, _number: int) -> str:
        """Return an empty string: every disk reports its volume's name."""
        return ""

    def name_tag(self, name: str) -> str:
        """Return the tag."""
        return volume_tag(name)

    def note_use(self, _run_id: str, _region: str) -> None:
        """Do nothing: one listing has the volumes of all regions."""

    def list_named(self, names: Sequence[str], _region: str) -> Sequence[ListedVolume]:
        """List by the tag of the name, compared without case."""
        wanted = {volume_tag(name).lower(): name for name in names}
        return [
            replace(volume, name=name)
            for volume in self._list("data volumes can't be listed")
            for name in sorted({wanted[tag.lower()] for tag in volume.tags if tag.lower() in wanted})
        ]

    def list_of_run(self, run_id: str, _region: str) -> Sequence[ListedVolume]:
        """List by the tag of the run."""
        listed = self._list("data volumes can't be listed")
        return [volume for volume in listed if volume.name and volume.run_id.lower() == run_id.lower()]

    def list_all(self, _region: str) -> Sequence[ListedVolume]:
        """List those of all runs, and those that kedge created: a volume has no run's tag between two runs."""
        listed = self._list("data volumes can't be listed")
        return [volume for volume in listed if volume.name and (volume.run_id or CREATED in volume.tags)]

    def read(self, volume: ListedVolume) -> ListedVolume:
        """Look it up by its id; a volume that is still unknown was created just now, and is free."""
        get = self._api.client.volumes.get
        body = self._api.read(f"volume {volume.id} can't be read", get, volume.id)
        return _parse(body["volume"]) if body else replace(volume, holder="", is_free=True)

    def create(self, spec: VolumeSpec, order: MachineOrder, _now: datetime) -> ListedVolume | Unclear:
        """Create it blank; names are unique in a region, so that there is one or none."""
        body = {
            "name": volume_name(spec.name),
            "description": f"kedge: made for run {order.run_id}",
            "size_gigabytes": spec.size_gib,
            "region": order.region,
            "tags": [KEDGE, CREATED, volume_tag(spec.name), *use_tags(order.run_id, spec.at_end)],
        }
        what = f"the data volume {spec.name} can't be made"
        try:
            made = self._api.create(what, self._api.client.volumes.create, body)["volume"]
        except UnclearError as err:
            return Unclear(why=err.why, error=err)
        return replace(_parse(made), name=spec.name)

    def takes_volumes(self, _instance_id: str, _region: str) -> bool:
        """Return True: the request for a droplet names its volumes."""
        return True

    def attach(self, _volume: DataVolume, _instance_id: str) -> None:
        """Do nothing: the request for a droplet names its volumes."""

    def is_ending_machine_of(self, _instance_id: str, _region: str, _run_id: str) -> bool:
        """Return False: a deleted droplet's volumes are detached at once."""
        return False

    def mark_used(self, volume: ListedVolume, run_id: str, at_end: AtEnd) -> None:
        """Remove the tags of the previous use, then write these."""
        what = f"the data volume {volume.name} ({volume.id}) can't be tagged"
        resource = {"resource_id": volume.id, "resource_type": "volume"}
        wanted = use_tags(run_id, at_end)
        for tag in use_tags_of(volume.tags):
            if tag not in wanted:
                take_tag(self._api, tag, what, resource)
        for tag in wanted:
            if tag not in volume.tags:
                put_tag(self._api, tag, what, resource)

    def delete(self, volume: ListedVolume) -> bool:
        """Delete it by its id."""
        return self._api.delete(f"volume {volume.id} can't be deleted", self._api.client.volumes.delete, volume.id)

    def find_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Find it by its name, which contains the volume and the run."""
        listed = self._api.pages(
            _not_copied(volume), self._api.client.volume_snapshots.list, "snapshots", volume_id=volume.id
        )
        name = _snapshot_name(volume, run_id)
        return next((str(each["id"]) for each in listed if each["name"] == name), "")

    def begin_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Take a snapshot; the API answers 201 once it is complete."""
        body = {
            "name": _snapshot_name(volume, run_id),
            "tags": [KEDGE, run_tag(run_id), volume_tag(volume.name)],
        }
        create = self._api.client.volume_snapshots.create
        return str(self._api.create(_not_copied(volume), create, volume.id, body)["snapshot"]["id"])

    def is_copied(self, _snapshot_id: str, _region: str) -> bool:
        """Return True: a listed snapshot is complete."""
        return True

    def _list(self, what: str) -> list[ListedVolume]:
        return [_parse(fields) for fields in self._api.pages(what, self._api.client.volumes.list, "volumes")]


def _parse(fields: Json) -> ListedVolume:
    tags = tuple(fields.get("tags") or ())
    holders = [str(holder) for holder in fields.get("droplet_ids") or ()]
    return ListedVolume(
        id=fields["id"],
        name=volume_of(tags),
        region=fields["region"]["slug"],
        place=fields["region"]["slug"],
        origin=Origin.MADE if CREATED in tags else Origin.FOUND,
        # The disk reports the name as its serial: /dev/disk/by-id/scsi-0DO_Volume_NAME.
        serial=fields["name"],
        is_free=not holders,
        run_id=run_of(tags),
        at_end=at_end_of(tags),
        holder=next(iter(holders), ""),
        tags=dict.fromkeys(tags, ""),
        size_gib=fields["size_gigabytes"],
        created_at=datetime.fromisoformat(fields["created_at"]).astimezone(UTC),
        usd_per_hour=fields["size_gigabytes"] * USD_PER_GIB_HOUR,
    )


def _snapshot_name(volume: ListedVolume, run_id: str) -> str:
    return fit(f"{volume_name(volume.name)}-{run_id.lower()}")


def _not_copied(volume: ListedVolume) -> str:
    return f"the data volume {volume.name} can't be copied"
