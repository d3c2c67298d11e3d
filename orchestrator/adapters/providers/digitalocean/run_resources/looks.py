"""A sweep's looks at firewalls, projects and tags that are kedge's, each with its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.api import Look
from orchestrator.adapters.providers.digitalocean.run_resources.network import is_own
from orchestrator.adapters.providers.digitalocean.run_resources.projects import list_projects, project_run
from orchestrator.adapters.providers.digitalocean.tags import machine_of, run_of
from orchestrator.core.sweep import Leftover

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json


def looks_of(api: Api) -> Sequence[Look]:
    """Return the looks at an account; each is one call, or several if the listing has several pages."""
    return (
        Look(see=partial(_firewall_leftovers, api), may_bill=False),
        Look(see=partial(_project_leftovers, api), may_bill=False),
        Look(see=partial(_tag_leftovers, api), may_bill=False),
    )


def _firewall_leftovers(api: Api) -> Sequence[Leftover]:
    listed = api.pages("the firewalls can't be listed", api.client.firewalls.list, "firewalls")
    return [_leftover("firewall", fields, run_of(fields["tags"])) for fields in listed if is_own(fields)]


def _project_leftovers(api: Api) -> Sequence[Leftover]:
    return [_leftover("project", fields, project_run(fields)) for fields in list_projects(api)]


def _tag_leftovers(api: Api) -> Sequence[Leftover]:
    return list(_lone_tags(api.pages("the tags can't be listed", api.client.tags.list, "tags")))


def _leftover(kind: str, fields: Json, run_id: str) -> Leftover:
    made_at = datetime.fromisoformat(fields["created_at"]).astimezone(UTC)
    return Leftover(kind=kind, name=fields["id"], run_id=run_id, created_at=made_at)


def _lone_tags(listed: Iterable[Json]) -> Iterator[Leftover]:
    """List the tags without resources: the others are removed with their resource."""
    for fields in listed:
        if (fields.get("resources") or {}).get("count"):
            continue
        name = fields["name"]
        run_id = run_of([name]) or machine_of([name]).rpartition("-m")[0]
        if run_id:
            yield Leftover(kind="tag", name=name, run_id=run_id)
