"""All that carries kedge's mark besides droplets: volumes, firewalls, projects and tags, each with its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.network import is_own
from orchestrator.adapters.providers.digitalocean.offers import USD_PER_GIB_HOUR
from orchestrator.adapters.providers.digitalocean.projects import list_projects, project_run
from orchestrator.adapters.providers.digitalocean.tags import CREATED, at_end_of, machine_of, run_of, volume_of
from orchestrator.core.job import AtEnd
from orchestrator.core.sweep import Leftover

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.adapters.providers.digitalocean.droplets import Droplet


def find_leftovers(api: Api, droplets: Iterable[Droplet]) -> tuple[Leftover, ...]:
    """List it all; four calls, and more where there are many of a kind.

    Args:
        api: the way to the account.
        droplets: all that carry kedge's mark: those that are no machine's bill for nobody.

    Raises:
        ApiError: the API doesn't answer.
    """
    volumes = api.pages("data volumes can't be listed", api.client.volumes.list, "volumes")
    firewalls = api.pages("the firewalls can't be listed", api.client.firewalls.list, "firewalls")
    tags = api.pages("the tags can't be listed", api.client.tags.list, "tags")
    return (
        *(_nameless(droplet) for droplet in droplets if not droplet.machine_id),
        *(_volume(fields) for fields in volumes if _is_used(fields.get("tags") or ())),
        *(_firewall(fields) for fields in firewalls if is_own(fields)),
        *(_project(fields) for fields in list_projects(api)),
        *_tags(tags),
    )


def _nameless(droplet: Droplet) -> Leftover:
    return Leftover(
        kind="droplet",
        name=str(droplet.id),
        # Whatever run it names: which machine of it this is, or was, nobody can tell.
        run_id="",
        region=droplet.region,
        created_at=droplet.created_at,
        usd_per_hour=droplet.usd_per_hour,
    )


def _is_used(tags: Sequence[str]) -> bool:
    """Tell whether a run has used a volume; one that kedge made may have lost its run's tag on the way to the next."""
    return bool(volume_of(tags)) and (bool(run_of(tags)) or CREATED in tags)


def _volume(fields: Json) -> Leftover:
    tags = fields["tags"]
    return Leftover(
        kind="data volume",
        name=f"{volume_of(tags)} ({fields['id']})",
        run_id=run_of(tags),
        region=fields["region"]["slug"],
        created_at=_time(fields["created_at"]),
        usd_per_hour=fields["size_gigabytes"] * USD_PER_GIB_HOUR,
        kept=at_end_of(tags) is AtEnd.KEEP or CREATED not in tags,
    )


def _firewall(fields: Json) -> Leftover:
    return Leftover(
        kind="firewall",
        name=fields["id"],
        run_id=run_of(fields["tags"]),
        created_at=_time(fields["created_at"]),
    )


def _project(fields: Json) -> Leftover:
    return Leftover(
        kind="project",
        name=fields["id"],
        run_id=project_run(fields),
        created_at=_time(fields["created_at"]),
    )


def _tags(listed: Iterator[Json]) -> Iterator[Leftover]:
    """List the tags that nothing carries: those of something go with it."""
    for fields in listed:
        if (fields.get("resources") or {}).get("count"):
            continue
        name = fields["name"]
        run_id = run_of([name]) or machine_of([name]).rpartition("-m")[0]
        if run_id:
            yield Leftover(kind="tag", name=name, run_id=run_id)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
