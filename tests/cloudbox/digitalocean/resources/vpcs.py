"""Private networks: droplets are in one of their region, its default one unless they say which. Nothing is routed."""

from __future__ import annotations

import re
from typing import Any

from tests.cloudbox.digitalocean.account.account import new_uuid
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found, unprocessable
from tests.cloudbox.digitalocean.account.clock import iso
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Droplet, Vpc
from tests.cloudbox.digitalocean.account.views import show_vpc
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_NAME = re.compile(r"[a-zA-Z0-9.-]+")


@routes.on("GET", "/vpcs", "vpc:read")
def list_vpcs(cloud: Cloud, call: Call) -> Answer:
    """List all networks."""
    return page(call, "vpcs", [show_vpc(vpc) for vpc in cloud.account.vpcs.values()])


@routes.on("POST", "/vpcs", "vpc:create")
def create_vpc(cloud: Cloud, call: Call) -> Answer:
    """Create a network; names are unique."""
    account, name, region = cloud.account, str(call.body.get("name", "")), str(call.body.get("region"))
    if not _NAME.fullmatch(name) or region not in account.regions:
        raise unprocessable("name and region must be valid")
    if any(vpc.name == name for vpc in account.vpcs.values()):
        raise ApiError(409, "conflict", "This name is already in use")
    vpc = Vpc(
        id=new_uuid(),
        name=name,
        region=region,
        ip_range=str(call.body.get("ip_range") or f"10.{200 + len(account.vpcs)}.0.0/20"),
        created_at=account.clock.now(),
        description=str(call.body.get("description") or ""),
        default=not any(vpc.region == region and vpc.default for vpc in account.vpcs.values()),
    )
    account.vpcs[vpc.id] = vpc
    return Answer(status=201, body={"vpc": show_vpc(vpc)})


@routes.on("GET", "/vpcs/{vpc_id}", "vpc:read")
def get_vpc(cloud: Cloud, call: Call) -> Answer:
    """Show a network."""
    return Answer(body={"vpc": show_vpc(_find(cloud, call))})


@routes.on("DELETE", "/vpcs/{vpc_id}", "vpc:delete")
def delete_vpc(cloud: Cloud, call: Call) -> Answer:
    """Delete a network that nobody is in and that isn't a region's default."""
    vpc = _find(cloud, call)
    if vpc.default or _members(cloud, vpc):
        raise ApiError(403, "forbidden", "Can not delete VPC with members, or the default one of its region")
    del cloud.account.vpcs[vpc.id]
    return NO_CONTENT


@routes.on("GET", "/vpcs/{vpc_id}/members", "vpc:read")
def list_members(cloud: Cloud, call: Call) -> Answer:
    """List who is in a network."""
    shown: list[dict[str, Any]] = [
        {"urn": f"do:droplet:{droplet.id}", "name": droplet.name, "created_at": iso(droplet.created_at)}
        for droplet in _members(cloud, _find(cloud, call))
    ]
    return page(call, "members", shown)


def _find(cloud: Cloud, call: Call) -> Vpc:
    vpc = cloud.account.vpcs.get(call.params["vpc_id"])
    if vpc is None:
        raise not_found()
    return vpc


def _members(cloud: Cloud, vpc: Vpc) -> list[Droplet]:
    return [droplet for droplet in cloud.account.present() if droplet.vpc_uuid == vpc.id]
