"""A run's project: a folder in the control panel, for the eye. That a token may use none is no failure of the run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.failures import ApiError, RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json

_log = logging.getLogger(__name__)

_PREFIX = "kedge "


def ensure_project(api: Api, run_id: str) -> str:
    """Make a run's project, or take the one that is there; return its id, empty where the token may not.

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


def join_project(api: Api, project: str, droplet_id: int) -> None:
    """Put a droplet into a project; nothing where there is none, and no failure where it can't be."""
    if not project:
        return
    what = f"droplet {droplet_id} can't be put into its project"
    try:
        api.read(what, api.client.projects.assign_resources, project, {"resources": [f"do:droplet:{droplet_id}"]})
    except ApiError as err:
        _log.warning("%s: %s", err.what, err.why)


def list_projects(api: Api) -> list[Json]:
    """List kedge's projects; none where the token may not look.

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
    """Return the run whose project it is; empty for somebody else's."""
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
            # Something of somebody else's was put into it, or the API hasn't noticed yet that the droplet is gone.
            lines.append(f"kept project {fields['name']}, which bills nothing: {err.message}")
    return lines
