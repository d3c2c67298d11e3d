"""What becomes of a run's data volumes when the run is torn down, as their own tags say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.ids import fit
from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.tags import (
    CREATED,
    KEDGE,
    at_end_of,
    run_of,
    run_tag,
    volume_of,
    volume_tag,
)
from orchestrator.adapters.providers.digitalocean.volumes import delete_volume, read_volume, volume_name
from orchestrator.core.job import AtEnd

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.core.ports import Clock

_DETACHES_IN = timedelta(minutes=3)


def end_volumes(api: Api, run_id: str, clock: Clock) -> Sequence[str]:
    """Keep, delete or snapshot the data volumes that a run used last; return a line for each.

    A volume is deleted only if kedge made it, once nobody has it, and after a snapshot only once the API has that. One
    that another run has taken since is that run's to settle.

    Raises:
        ApiError: the API doesn't allow it.
    """
    listed = api.pages("data volumes can't be looked for", api.client.volumes.list, "volumes")
    mine = [fields for fields in listed if _is_of_run(fields, run_id)]
    return [_end(api, fields, run_id, clock) for fields in mine]


def _is_of_run(fields: Json, run_id: str) -> bool:
    tags = fields.get("tags") or ()
    return bool(volume_of(tags)) and run_of(tags).lower() == run_id.lower()


def _end(api: Api, fields: Json, run_id: str, clock: Clock) -> str:
    tags = fields.get("tags") or ()
    name = f"data volume {volume_of(tags)} ({fields['id']})"
    wish = at_end_of(tags)
    if wish is AtEnd.KEEP:
        return f"kept {name}; it bills until it is deleted"
    if not wait_until(clock, _DETACHES_IN, lambda: _is_free(api, fields["id"])):
        return f"kept {name}: a machine still has it; give the command again later"
    copy = f"; its snapshot is {_snapshot(api, fields, run_id)}" if wish is AtEnd.SNAPSHOT else ""
    if CREATED not in tags:
        return f"kept {name}, which kedge didn't make{copy}"
    now = read_volume(api, fields["id"])
    if now is not None and not _is_of_run(now, run_id):
        return f"kept {name}: another run has used it since{copy}"
    delete_volume(api, fields["id"])
    return f"deleted {name}{copy}"


def _is_free(api: Api, volume_id: str) -> bool:
    return not (read_volume(api, volume_id) or {}).get("droplet_ids")


def _snapshot(api: Api, fields: Json, run_id: str) -> str:
    """Take the run's snapshot of a volume, or find the one that an earlier teardown took; both by its name.

    The API answers when the snapshot is there (201); a name is looked for first, since a creation is never repeated.
    """
    what = f"the data volume {volume_of(fields['tags'])} can't be copied"
    name = fit(f"{volume_name(volume_of(fields['tags']))}-{run_id.lower()}")
    listed = api.pages(what, api.client.volume_snapshots.list, "snapshots", volume_id=fields["id"])
    taken = [str(each["id"]) for each in listed if each["name"] == name]
    if taken:
        return taken[0]
    body = {"name": name, "tags": [KEDGE, run_tag(run_id), volume_tag(volume_of(fields["tags"]))]}
    return str(api.create(what, api.client.volume_snapshots.create, fields["id"], body)["snapshot"]["id"])
