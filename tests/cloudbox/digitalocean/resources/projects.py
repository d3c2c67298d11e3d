"""Projects, and which resources lie in which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account, new_uuid
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found, unprocessable
from tests.cloudbox.digitalocean.account.clock import iso
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Project
from tests.cloudbox.digitalocean.account.views import show_project
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_ENVIRONMENTS = ("Development", "Staging", "Production")
_URN = re.compile(r"do:(droplet|volume|floatingip):(.+)")


@routes.on("GET", "/projects", "project:read")
def list_projects(cloud: Cloud, call: Call) -> Answer:
    """List all projects."""
    return page(call, "projects", [show_project(project) for project in cloud.account.projects.values()])


@routes.on("POST", "/projects", "project:create")
def create_project(cloud: Cloud, call: Call) -> Answer:
    """Create a project; names are unique."""
    project = Project(
        id=new_uuid(),
        name="",
        description="",
        purpose="",
        environment=_ENVIRONMENTS[0],
        created_at=cloud.clock.now(),
    )
    _fill(cloud.account, project, call.body)
    if not project.name or not project.purpose:
        raise unprocessable("name and purpose are required")
    cloud.account.projects[project.id] = project
    return Answer(status=201, body={"project": show_project(project)})


@routes.on("GET", "/projects/{project_id}", "project:read")
def get_project(cloud: Cloud, call: Call) -> Answer:
    """Show a project; `default` is the default one."""
    return Answer(body={"project": show_project(_find(cloud, call))})


@routes.on("PUT", "/projects/{project_id}", "project:update")
@routes.on("PATCH", "/projects/{project_id}", "project:update")
def change_project(cloud: Cloud, call: Call) -> Answer:
    """Change a project."""
    project = _find(cloud, call)
    _fill(cloud.account, project, call.body)
    return Answer(body={"project": show_project(project)})


@routes.on("DELETE", "/projects/{project_id}", "project:delete")
def delete_project(cloud: Cloud, call: Call) -> Answer:
    """Delete a project that is empty."""
    project = _find(cloud, call)
    if project.is_default:
        raise ApiError(403, "forbidden", "the default project cannot be deleted")
    if project.resources:
        raise ApiError(412, "precondition_failed", "cannot delete a project with resources. move the resources first")
    del cloud.account.projects[project.id]
    return NO_CONTENT


@routes.on("GET", "/projects/{project_id}/resources", "project:read")
def list_resources(cloud: Cloud, call: Call) -> Answer:
    """List what lies in a project."""
    return page(call, "resources", [_show(urn, at, "ok") for urn, at in _find(cloud, call).resources.items()])


@routes.on("POST", "/projects/{project_id}/resources", "project:assign_resource")
def assign(cloud: Cloud, call: Call) -> Answer:
    """Put resources into a project; each one's status says how that went."""
    account, project = cloud.account, _find(cloud, call)
    answers = []
    for urn in call.body.get("resources") or []:
        status = "already_assigned" if urn in project.resources else "assigned"
        if not _exists(account, urn):
            status = "not_found"
        elif status == "assigned":
            account.file_away(urn, project.id)
        answers.append(_show(urn, project.resources.get(urn, account.clock.now()), status))
    return Answer(body={"resources": answers})


def _find(cloud: Cloud, call: Call) -> Project:
    wanted = call.params["project_id"]
    project = cloud.account.default_project() if wanted == "default" else cloud.account.projects.get(wanted)
    if project is None:
        raise not_found()
    return project


def _fill(account: Account, project: Project, body: Mapping[str, Any]) -> None:
    name = str(body.get("name", project.name))
    if any(other.name == name for other in account.projects.values() if other is not project):
        raise ApiError(409, "conflict", "name is already in use")
    environment = str(body.get("environment", project.environment))
    if environment not in _ENVIRONMENTS:
        raise unprocessable(f"environment must be one of {', '.join(_ENVIRONMENTS)}")
    project.name, project.environment = name, environment
    project.description = str(body.get("description", project.description))
    project.purpose = str(body.get("purpose", project.purpose))
    if body.get("is_default"):
        for other in account.projects.values():
            other.is_default = other is project


def _exists(account: Account, urn: str) -> bool:
    matched = _URN.fullmatch(urn)
    if matched is None:
        raise unprocessable(f"{urn} is no URN of a resource")
    kind, name = matched.groups()
    known: dict[str, set[str]] = {
        "droplet": {str(droplet.id) for droplet in account.present()},
        "volume": set(account.volumes),
        "floatingip": set(account.reserved_ips),
    }
    return name in known[kind]


def _show(urn: str, assigned_at: float, status: str) -> dict[str, Any]:
    return {"urn": urn, "assigned_at": iso(assigned_at), "links": {"self": ""}, "status": status}
