"""`DoCloudApi`: the `CloudApi` of DigitalOcean and the AMD Developer Cloud."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.api import CloudApi, Look, SelfEnd
from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.model import (
    Chosen,
    CreationStatus,
    Deletion,
    Draft,
    Instance,
    Made,
    Outcome,
    Wanted,
)
from orchestrator.adapters.cloud.refusals import Unclear
from orchestrator.adapters.providers.digitalocean.instances.actions import action_of, creation_status
from orchestrator.adapters.providers.digitalocean.instances.addresses import release_addresses, reserved_addresses
from orchestrator.adapters.providers.digitalocean.instances.droplets import (
    delete_droplet,
    list_droplets,
    mark_lifetime,
    parse_instance,
    read_droplet,
)
from orchestrator.adapters.providers.digitalocean.instances.end_reasons import why_ended
from orchestrator.adapters.providers.digitalocean.instances.refusals import read_refusal
from orchestrator.adapters.providers.digitalocean.instances.requests import render_request
from orchestrator.adapters.providers.digitalocean.market.images import Image, find_image
from orchestrator.adapters.providers.digitalocean.market.room import require_room
from orchestrator.adapters.providers.digitalocean.market.sizes import find_size
from orchestrator.adapters.providers.digitalocean.run_resources.looks import looks_of
from orchestrator.adapters.providers.digitalocean.run_resources.run_resources import DoResources
from orchestrator.adapters.providers.digitalocean.self_deletion import render_end_script, secret_files
from orchestrator.adapters.providers.digitalocean.traits import traits_of
from orchestrator.adapters.providers.digitalocean.volume_api import DoVolumes
from orchestrator.adapters.rest.failures import RefusedError, UnclearError
from orchestrator.core.job import AtEnd

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.records import MachineRecord
    from orchestrator.adapters.cloud.volumes.model import DataVolume
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.adapters.providers.digitalocean.run_resources.record import Records
    from orchestrator.adapters.providers.digitalocean.self_deletion import SelfDelete
    from orchestrator.core.machine import MachineEnd, MachineOrder
    from orchestrator.core.ports import Clock

_IN_PROGRESS = (409, 422)
"""Statuses of a second deletion, while the first is under way."""


class DoCloudApi(CloudApi[Image, str]):
    """One account; a listing covers all regions.

    Args:
        api: the account's API.
        ending: what a droplet needs to delete itself.
        records: this computer's records.
        clock: for waits.
    """

    def __init__(self, api: Api, ending: SelfDelete, records: Records, clock: Clock) -> None:
        self.traits = traits_of(api.site)
        self.volumes = DoVolumes(api)
        self.resources = DoResources(api, records, clock, self.account_id)
        self._api = api
        self._ending = ending

    def account_id(self) -> str:
        """Return the team's id, else the account's; requested once."""
        return self._account_id

    def list_instances(self, wanted: Wanted, _places: Collection[str]) -> Sequence[Instance]:
        """List droplets by their tags."""
        return list_droplets(self._api, wanted)

    def read_instances(self, instance_ids: Collection[str], _region: str) -> Sequence[Instance]:
        """Look each one up."""
        return [seen for each in instance_ids if (seen := read_droplet(self._api, each)) is not None]

    def choose(self, order: MachineOrder) -> Chosen[Image]:
        """Look up the size and the image, and before a run's first machine the room for all of them."""
        require_room(self._api, order)
        size = find_size(self._api, order.instance_type)
        return Chosen(gpus=size.gpus, native=find_image(self._api, order.image_id, size, order.region))

    def send(self, draft: Draft[Image, str]) -> Outcome:
        """Send it once; `Api` waits out the rate limit, since such an answer means that nothing was done."""
        what = f"machine {draft.order.id} can't be created"
        try:
            answer = self._api.create(what, self._api.client.droplets.create, render_request(draft))
        except RefusedError as err:
            return read_refusal(err)
        except UnclearError as err:
            return Unclear(why=err.why, error=err)
        return Made(instance=parse_instance(answer["droplet"]), action=action_of(answer))

    def creation_status(self, instance_id: str, _region: str, action: str) -> CreationStatus:
        """Read the creation's action."""
        return creation_status(self._api, instance_id, action)

    def delete(self, instance_id: str, _region: str) -> Deletion:
        """Delete a droplet; an accepted deletion of a `new` droplet may have no effect."""
        try:
            return Deletion.ACCEPTED if delete_droplet(self._api, instance_id) else Deletion.UNKNOWN
        except RefusedError as err:
            if err.status not in _IN_PROGRESS:
                raise
            return Deletion.BUSY

    def before_delete(self, instance_ids: Collection[str]) -> Sequence[str]:
        """Release reserved addresses while the API still says whose they are."""
        return release_addresses(self._api, reserved_addresses(self._api, instance_ids))

    def after_delete(self, unsettled: Sequence[str]) -> Sequence[str]:
        """Release the addresses that no droplet has any more."""
        return release_addresses(self._api, unsettled)

    def why_ended(self, record: MachineRecord | None, found: Sequence[Instance], _now: datetime) -> MachineEnd | None:
        """Say that a droplet is off, or couldn't be created; the API forgets deleted droplets."""
        return why_ended(self._api, record, found)

    def mark_lifetime(self, instance: Instance, lifetime: timedelta) -> bool:
        """Replace its tag."""
        mark_lifetime(self._api, instance.id, lifetime)
        return True

    def looks(self, _places: Sequence[str]) -> Sequence[Look]:
        """Return the looks at firewalls, projects and tags."""
        return looks_of(self._api)

    def self_end(self, volumes: Sequence[DataVolume]) -> SelfEnd:
        """Delete the droplet, and the volumes that kedge created and the job wants deleted."""
        ends = [
            volume.id
            for volume in volumes
            if volume.spec.at_end is AtEnd.DELETE and volume.listed.origin is not Origin.FOUND
        ]
        return SelfEnd(command=self._ending.command, script=render_end_script(self._ending, ends))

    def supplies_for_root(self) -> Mapping[str, str]:
        """Return the token that deletes droplets."""
        return secret_files(self._ending)

    @cached_property
    def _account_id(self) -> str:
        body = self._api.read("the account can't be used", self._api.client.account.get) or {}
        account = body.get("account") or {}
        return str((account.get("team") or {}).get("uuid") or account.get("uuid") or "")
