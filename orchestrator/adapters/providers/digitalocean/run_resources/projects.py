"""A run's project: a folder in the control panel. A token without the scope for projects is no failure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orchestrator.adapters.rest.failures import ApiError, RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json

_log = logging.getLogger(__name__)

_PREFIX = "kedge "


def ensure_project(api: Api, run_id: str) -> str:
    """Find or create a run's project; return its id, empty if the token lacks the scope.

    Raises:
        UnclearError: the API doesn't answer.
    """
    there = [str(fields["id"]) for fields in list_projects(api) if project_run(fields) == run_id]
    if there:
        return there[0]
    body = {
        "name": _PREFIX + run_id,
        "purpose": "Machine learning / AI / Data processing",
        "description": "made by kedge, and removed at the run's end",
        "environment": "Development",
    }
    try:
        return str(api.create("the project can't be made", api.client.projects.create, body)["project"]["id"])
    except RefusedError as err:
        _log.warning("run %s has no project of its own: %s", run_id, err.why)
        return ""


def join_project(api: Api, project: str, droplet_id: str) -> None:
    """Put a droplet into a project, if there is one; a failure is only logged."""
    if not project:
        return
    what = f"droplet {droplet_id} can't be put into its project"
    try:
        api.read(what, api.client.projects.assign_resources, project, {"resources": [f"do:droplet:{droplet_id}"]})
    except ApiError as err:
        _log.warning("%s: %s", err.what, err.why)


def list_projects(api: Api) -> list[Json]:
    """List kedge's projects; none if the token lacks the scope.

    Raises:
        UnclearError: the API doesn't answer.
    """
    try:
        listed = list(api.pages("the projects can't be listed", api.client.projects.list, "projects"))
    except RefusedError as err:
        _log.info("%s: %s", err.what, err.why)
        return []
    return [fields for fields in listed if project_run(fields)]


def project_run(fields: Json) -> str:
    """Return a project's run; empty if it isn't kedge's."""
    name = str(fields["name"])
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""


def remove_projects(api: Api, run_id: str) -> list[str]:
    """Remove a run's projects; return a line for each.

    Raises:
        UnclearError: the API doesn't answer.
    """
    lines = []
    for fields in list_projects(api):
        if project_run(fields) != run_id:
            continue
        try:
            api.delete(f"project {fields['id']} can't be removed", api.client.projects.delete, fields["id"])
            lines.append(f"removed project {fields['name']}")
        except RefusedError as err:
            # Somebody put something else into it, or the API hasn't noticed yet that the droplet is gone.
            lines.append(f"kept project {fields['name']}, which bills nothing: {err.message}")
    return lines
