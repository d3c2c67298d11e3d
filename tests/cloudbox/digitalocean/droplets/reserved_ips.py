"""Reserved addresses: free of charge while a droplet has them. The box routes nothing through them."""

from __future__ import annotations

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, not_found, number_of, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Action, Droplet, ReservedIp
from tests.cloudbox.digitalocean.account.views import show_action, show_reserved_ip
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.droplets.actions import answer_action
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/reserved_ips", "reserved_ip:read")
def list_addresses(cloud: Cloud, call: Call) -> Answer:
    """List all reserved addresses."""
    shown = [show_reserved_ip(cloud.account, one) for one in cloud.account.reserved_ips.values()]
    return page(call, "reserved_ips", shown)


@routes.on("POST", "/reserved_ips", "reserved_ip:create")
def reserve(cloud: Cloud, call: Call) -> Answer:
    """Reserve an address for a droplet, or in a region for later."""
    account, body = cloud.account, call.body
    droplet = _droplet(account, body["droplet_id"]) if body.get("droplet_id") else None
    region = droplet.region if droplet else str(body.get("region"))
    if region not in account.regions:
        raise unprocessable("Region is not valid")
    project = account.projects.get(str(body.get("project_id")), account.default_project())
    reserved = ReservedIp(
        # 198.51.100.0/24 is for documentation (RFC 5737): it can't be anybody's.
        ip=f"198.51.100.{len(account.reserved_ips) + 1}",
        region=region,
        project_id=project.id,
        created_at=account.clock.now(),
        droplet_id=droplet.id if droplet else None,
    )
    account.reserved_ips[reserved.ip] = reserved
    account.file_away(_urn(reserved), project.id)
    return Answer(status=202, body={"reserved_ip": show_reserved_ip(account, reserved)})


@routes.on("GET", "/reserved_ips/{ip}", "reserved_ip:read")
def get_address(cloud: Cloud, call: Call) -> Answer:
    """Show a reserved address."""
    return Answer(body={"reserved_ip": show_reserved_ip(cloud.account, _find(cloud, call))})


@routes.on("DELETE", "/reserved_ips/{ip}", "reserved_ip:delete")
def release(cloud: Cloud, call: Call) -> Answer:
    """Give an address back, also where a droplet has it."""
    delete(cloud.account, _find(cloud, call))
    return NO_CONTENT


@routes.on("POST", "/reserved_ips/{ip}/actions", "reserved_ip:update")
def act(cloud: Cloud, call: Call) -> Answer:
    """Assign an address to a droplet, or take it away."""
    reserved, kind = _find(cloud, call), call.body.get("type")
    if kind == "assign":
        droplet = _droplet(cloud.account, call.body.get("droplet_id"))
        if droplet.region != reserved.region:
            raise unprocessable("The reserved IP and the droplet are in different regions")
        reserved.droplet_id = droplet.id
    elif kind == "unassign":
        reserved.droplet_id = None
    else:
        raise unprocessable(f"unknown action {kind!r}")
    action = cloud.account.begin(f"{kind}_ip", 0, "reserved_ip", reserved.region)
    cloud.account.address_actions[action.id] = reserved.ip
    return Answer(status=201, body={"action": show_action(cloud.account, action)})


@routes.on("GET", "/reserved_ips/{ip}/actions", "reserved_ip:read")
def list_actions(cloud: Cloud, call: Call) -> Answer:
    """List what was done to an address."""
    return page(call, "actions", [show_action(cloud.account, action) for action in _of(cloud, call)])


@routes.on("GET", "/reserved_ips/{ip}/actions/{action_id}", "reserved_ip:read")
def get_action(cloud: Cloud, call: Call) -> Answer:
    """Show one thing that was done to an address."""
    wanted = number_of(call, "action_id")
    return answer_action(cloud, (action for action in _of(cloud, call) if action.id == wanted))


def delete(account: Account, reserved: ReservedIp) -> None:
    """Give an address back."""
    del account.reserved_ips[reserved.ip]
    account.forget(_urn(reserved))


def _find(cloud: Cloud, call: Call) -> ReservedIp:
    reserved = cloud.account.reserved_ips.get(call.params["ip"])
    if reserved is None:
        raise not_found()
    return reserved


def _droplet(account: Account, number: object) -> Droplet:
    for droplet in account.present():
        if droplet.id == number:
            return droplet
    raise unprocessable("Droplet not found")


def _of(cloud: Cloud, call: Call) -> list[Action]:
    account, ip = cloud.account, _find(cloud, call).ip
    return [account.actions[number] for number, one in account.address_actions.items() if one == ip]


def _urn(reserved: ReservedIp) -> str:
    # The name from before these addresses were renamed stays in URNs.
    return f"do:floatingip:{reserved.ip}"
