"""Data volumes: found by name, made where there is none, and given to a droplet at its birth.

A volume is known by its tag `kedge-volume:NAME`. One that kedge made also carries `kedge-created`: only such a one may
the machine ever format, and only when it is blank.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.boot import BootVolume, Origin
from orchestrator.adapters.ids import fit
from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.failures import ApiError, UnclearError
from orchestrator.adapters.providers.digitalocean.tags import (
    CREATED,
    KEDGE,
    run_of,
    use_tags,
    use_tags_of,
    volume_of,
    volume_tag,
)
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.core.job import Resources, VolumeSpec
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)

_DETACHES_IN = timedelta(minutes=3)
_LISTED_IN = timedelta(seconds=30)
_NO_NAME = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """A volume and what the run wants of it.

    Attributes:
        name: the API's, under which the machine sees its disk.
        ours: kedge made it.
        is_new: it was made for this very order.
    """

    id: str
    name: str
    spec: VolumeSpec
    tags: tuple[str, ...]
    is_new: bool = False

    @property
    def ours(self) -> bool:
        """Kedge made it."""
        return CREATED in self.tags

    @property
    def boot(self) -> BootVolume:
        """What the machine must know of it."""
        origin = Origin.MADE if self.ours else Origin.FOUND
        return BootVolume(serial=self.name, target=self.spec.target, origin=origin)


def volume_name(name: str) -> str:
    """Return a volume's name at the API: lower-case letters, digits and dashes, a letter first, 64 at most."""
    plain = _NO_NAME.sub("-", name.lower()).strip("-")
    return fit(plain if plain == name and plain[:1].isalpha() else f"kedge-{plain}")


def place_volumes(api: Api, resources: Resources) -> Resources:
    """Look for the wished volumes: one that exists fixes the region, and bills by its own size.

    Raises:
        BadRequestError: they are in different regions, or in none that was wished for.
        ApiError: the API doesn't tell.
    """
    if not resources.volumes:
        return resources
    found = find_volumes(api, [spec.name for spec in resources.volumes])
    sized = tuple(
        replace(spec, size_gib=found[spec.name]["size_gigabytes"]) if spec.name in found else spec
        for spec in resources.volumes
    )
    places = {fields["region"]["slug"]: name for name, fields in found.items()}
    if not places:
        return replace(resources, volumes=sized)
    if len(places) > 1 or (resources.regions and not set(places) & set(resources.regions)):
        where = ", ".join(f"{name} in {region}" for region, name in sorted(places.items()))
        raise BadRequestError(
            "these volumes can't be attached to one machine there",
            why=f"a volume serves machines of its own region only: {where}",
            fix="choose that --region, or copy a volume by a snapshot into the other's region",
        )
    return replace(resources, volumes=sized, regions=tuple(places))


def find_volumes(api: Api, names: Sequence[str]) -> Mapping[str, Json]:
    """Find the volumes of these names, by tag.

    Raises:
        KedgeError: there are two of one name.
        ApiError: the API doesn't tell.
    """
    wanted = {volume_tag(name).lower(): name for name in names}
    found: dict[str, Json] = {}
    for fields in api.pages("data volumes can't be looked for", api.client.volumes.list, "volumes"):
        for name in {wanted[tag.lower()] for tag in fields.get("tags") or () if tag.lower() in wanted}:
            if name in found:
                raise KedgeError(
                    f"there are two data volumes called {name}",
                    why=f"{found[name]['id']} and {fields['id']} both carry the tag {volume_tag(name)}",
                    fix="take the tag from the one that isn't meant",
                )
            found[name] = fields
    return found


def ready_volumes(api: Api, order: MachineOrder, clock: Clock) -> tuple[DataVolume, ...]:
    """Find or make an order's volumes, and wait until each can be attached. No call where there are none.

    Raises:
        ConflictError: another droplet has one.
        StillBillingError: one may have been made, and the API doesn't tell.
        KedgeError: the API doesn't allow it.
    """
    if not order.volumes:
        return ()
    found = find_volumes(api, [spec.name for spec in order.volumes])
    volumes: list[DataVolume] = []
    try:
        # One by one: what was made before the one that can't be is deleted again.
        volumes.extend(_take_or_make(api, order, spec, found.get(spec.name), clock) for spec in order.volumes)
        for volume in volumes:
            _await_free(api, volume, clock)
    except KedgeError:
        drop_new(api, volumes, clock)
        raise
    return tuple(volumes)


def known_volumes(api: Api, specs: Sequence[VolumeSpec]) -> tuple[DataVolume, ...]:
    """Return those of some volumes that are there, whoever has them. No call where none is wished for.

    Raises:
        ApiError: the API doesn't tell.
    """
    if not specs:
        return ()
    found = find_volumes(api, [spec.name for spec in specs])
    return tuple(_data_volume(found[spec.name], spec) for spec in specs if spec.name in found)


def use_volumes(api: Api, run_id: str, volumes: Sequence[DataVolume]) -> None:
    """Note on volumes that this run has them now: it settles their end. No call where they say so already.

    Raises:
        ApiError: the API doesn't allow it.
    """
    for volume in volumes:
        _retag(api, volume, use_tags(run_id, volume.spec.at_end))


def drop_new(api: Api, volumes: Sequence[DataVolume], clock: Clock) -> None:
    """Delete the volumes that were made for an order which then could not be filled; they are blank."""
    for volume in volumes:
        if volume.is_new:
            try:
                # A droplet that had it for a moment, and is deleted, may be shown with it for a while.
                _await_unattached(api, volume, clock)
                delete_volume(api, volume.id)
            except ApiError as err:
                _log.warning("data volume %s (%s) is left, blank: %s", volume.spec.name, volume.id, err.why)


def read_volume(api: Api, volume_id: str) -> Json | None:
    """Look a volume up; None where there is none."""
    body = api.read(f"volume {volume_id} can't be looked at", api.client.volumes.get, volume_id)
    return body["volume"] if body else None


def delete_volume(api: Api, volume_id: str) -> bool:
    """Delete a volume; False where it is gone already."""
    return api.delete(f"volume {volume_id} can't be deleted", api.client.volumes.delete, volume_id)


def _take_or_make(api: Api, order: MachineOrder, spec: VolumeSpec, there: Json | None, clock: Clock) -> DataVolume:
    if there is None:
        return _make(api, order, spec, clock)
    if there["region"]["slug"] != order.region:
        raise BadRequestError(
            f"the data volume {spec.name} can't be attached in {order.region}",
            why=f"it is in {there['region']['slug']}",
            fix=f"say --region {there['region']['slug']}",
        )
    return _data_volume(there, spec)


def _make(api: Api, order: MachineOrder, spec: VolumeSpec, clock: Clock) -> DataVolume:
    body = {
        "name": volume_name(spec.name),
        "description": f"kedge: made for run {order.run_id}",
        "size_gigabytes": spec.size_gib,
        "region": order.region,
        "tags": [KEDGE, CREATED, volume_tag(spec.name), *use_tags(order.run_id, spec.at_end)],
    }
    what = f"the data volume {spec.name} can't be made"
    try:
        made = api.create(what, api.client.volumes.create, body)["volume"]
    except UnclearError as err:
        # Its name is taken once in a region, so that there is one or none.
        made = _await_listed(api, spec.name, clock)
        if made is None:
            raise StillBillingError(
                f"the data volume {spec.name} may have been made",
                why=f"{err.why}; it isn't listed so far",
                fix=f"look again with `kedge teardown {order.run_id}`",
            ) from err
    _log.info("made data volume %s (%s, %d GiB)", spec.name, made["id"], spec.size_gib)
    return replace(_data_volume(made, spec), is_new=True)


def _await_listed(api: Api, name: str, clock: Clock) -> Json | None:
    found: dict[str, Json] = {}

    def is_listed() -> bool:
        found.update(find_volumes(api, [name]))
        return bool(found)

    wait_until(clock, _LISTED_IN, is_listed)
    return found.get(name)


def _data_volume(fields: Json, spec: VolumeSpec) -> DataVolume:
    return DataVolume(id=fields["id"], name=fields["name"], spec=spec, tags=tuple(fields.get("tags") or ()))


def _await_free(api: Api, volume: DataVolume, clock: Clock) -> None:
    if not _await_unattached(api, volume, clock):
        raise ConflictError(
            f"the data volume {volume.spec.name} is in use",
            why=f"{volume.id} is attached to another droplet, of run {run_of(volume.tags) or 'nobody'}",
            fix="wait for the run that has it, or tear that run down",
        )


def _await_unattached(api: Api, volume: DataVolume, clock: Clock) -> bool:
    def is_free() -> bool:
        fields = read_volume(api, volume.id)
        # A volume that was made just now may not be known everywhere yet; nobody can have it.
        return not (fields or {}).get("droplet_ids")

    return wait_until(clock, _DETACHES_IN, is_free)


def _retag(api: Api, volume: DataVolume, wanted: Sequence[str]) -> None:
    what = f"the data volume {volume.spec.name} ({volume_of(volume.tags)}) can't be tagged"
    resource = {"resources": [{"resource_id": volume.id, "resource_type": "volume"}]}
    tags = api.client.tags
    for tag in use_tags_of(volume.tags):
        if tag not in wanted:
            api.read(what, tags.unassign_resources, tag, resource)
    for tag in wanted:
        if tag not in volume.tags:
            api.read(what, tags.create, {"name": tag})
            api.read(what, tags.assign_resources, tag, resource)
