"""Firewalls, which reach droplets by id or by tag. `life/packets.py` filters packets by them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account, new_uuid
from tests.cloudbox.digitalocean.account.call import NO_CONTENT, ApiError, not_found, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import Firewall
from tests.cloudbox.digitalocean.account.views import show_firewall
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]+")
_MOST_TAGS = 5


@routes.on("GET", "/firewalls", "firewall:read")
def list_firewalls(cloud: Cloud, call: Call) -> Answer:
    """List all firewalls."""
    return page(
        call, "firewalls", [show_firewall(cloud.account, firewall) for firewall in cloud.account.firewalls.values()]
    )


@routes.on("POST", "/firewalls", "firewall:create")
def create_firewall(cloud: Cloud, call: Call) -> Answer:
    """Create a firewall; names are unique."""
    body = call.body
    firewall = Firewall(id=new_uuid(), name="", created_at=cloud.clock.now(), inbound_rules=[], outbound_rules=[])
    _fill(cloud.account, firewall, body)
    cloud.account.firewalls[firewall.id] = firewall
    return Answer(status=202, body={"firewall": show_firewall(cloud.account, firewall)})


@routes.on("GET", "/firewalls/{firewall_id}", "firewall:read")
def get_firewall(cloud: Cloud, call: Call) -> Answer:
    """Show a firewall."""
    return Answer(body={"firewall": show_firewall(cloud.account, _find(cloud, call))})


@routes.on("PUT", "/firewalls/{firewall_id}", "firewall:update")
def replace_firewall(cloud: Cloud, call: Call) -> Answer:
    """Give a firewall another content: what isn't named is emptied."""
    firewall = _find(cloud, call)
    _fill(cloud.account, firewall, call.body)
    return Answer(body={"firewall": show_firewall(cloud.account, firewall)})


@routes.on("DELETE", "/firewalls/{firewall_id}", "firewall:delete")
def delete_firewall(cloud: Cloud, call: Call) -> Answer:
    """Delete a firewall."""
    del cloud.account.firewalls[_find(cloud, call).id]
    return NO_CONTENT


@routes.on("POST", "/firewalls/{firewall_id}/tags", "firewall:update")
def add_tags(cloud: Cloud, call: Call) -> Answer:
    """Let the rules concern what carries these tags, too."""
    firewall = _find(cloud, call)
    firewall.tags = _tags(cloud.account, [*firewall.tags, *call.body.get("tags", [])])
    return NO_CONTENT


@routes.on("DELETE", "/firewalls/{firewall_id}/tags", "firewall:update")
def remove_tags(cloud: Cloud, call: Call) -> Answer:
    """Let the rules not concern what carries these tags."""
    firewall = _find(cloud, call)
    firewall.tags = [tag for tag in firewall.tags if tag not in call.body.get("tags", [])]
    return NO_CONTENT


@routes.on("POST", "/firewalls/{firewall_id}/droplets", "firewall:update")
def add_droplets(cloud: Cloud, call: Call) -> Answer:
    """Let the rules concern these droplets, too."""
    firewall = _find(cloud, call)
    firewall.droplet_ids = _droplets(cloud.account, [*firewall.droplet_ids, *call.body.get("droplet_ids", [])])
    return NO_CONTENT


@routes.on("DELETE", "/firewalls/{firewall_id}/droplets", "firewall:update")
def remove_droplets(cloud: Cloud, call: Call) -> Answer:
    """Let the rules not concern these droplets."""
    firewall = _find(cloud, call)
    firewall.droplet_ids = [one for one in firewall.droplet_ids if one not in call.body.get("droplet_ids", [])]
    return NO_CONTENT


@routes.on("POST", "/firewalls/{firewall_id}/rules", "firewall:update")
def add_rules(cloud: Cloud, call: Call) -> Answer:
    """Add rules."""
    firewall, body = _find(cloud, call), call.body
    inbound, outbound = _rules(body, "inbound_rules", "sources"), _rules(body, "outbound_rules", "destinations")
    firewall.inbound_rules += [rule for rule in inbound if rule not in firewall.inbound_rules]
    firewall.outbound_rules += [rule for rule in outbound if rule not in firewall.outbound_rules]
    return NO_CONTENT


@routes.on("DELETE", "/firewalls/{firewall_id}/rules", "firewall:update")
def remove_rules(cloud: Cloud, call: Call) -> Answer:
    """Remove rules, each named in full."""
    firewall, body = _find(cloud, call), call.body
    firewall.inbound_rules = [one for one in firewall.inbound_rules if one not in body.get("inbound_rules", [])]
    firewall.outbound_rules = [one for one in firewall.outbound_rules if one not in body.get("outbound_rules", [])]
    return NO_CONTENT


def _find(cloud: Cloud, call: Call) -> Firewall:
    firewall = cloud.account.firewalls.get(call.params["firewall_id"])
    if firewall is None:
        raise not_found()
    return firewall


def _fill(account: Account, firewall: Firewall, body: Mapping[str, Any]) -> None:
    name = str(body.get("name", ""))
    if not _NAME.fullmatch(name):
        raise unprocessable("name may contain letters, numbers, dots and dashes only, and is at least two long")
    if any(other.name == name for other in account.firewalls.values() if other is not firewall):
        raise ApiError(409, "conflict", "duplicate name")
    inbound, outbound = _rules(body, "inbound_rules", "sources"), _rules(body, "outbound_rules", "destinations")
    if not inbound and not outbound:
        raise unprocessable("must specify at least one rule")
    droplet_ids, tags = _droplets(account, body.get("droplet_ids") or []), _tags(account, body.get("tags") or [])
    firewall.name, firewall.inbound_rules, firewall.outbound_rules = name, inbound, outbound
    firewall.droplet_ids, firewall.tags = droplet_ids, tags
    firewall.changed_at = account.clock.now()


def _rules(body: Mapping[str, Any], name: str, ends: str) -> list[dict[str, Any]]:
    rules = list(body.get(name) or [])
    for address in (address for rule in rules for address in rule.get(ends, {}).get("addresses", [])):
        try:
            ip_network(address)
        except ValueError as err:
            raise unprocessable(f"address is invalid: {err}") from err
    return rules


def _tags(account: Account, tags: list[str]) -> list[str]:
    # fact: do-firewall-tags-exist
    if unknown := [tag for tag in tags if tag not in account.tags]:
        raise unprocessable(f"tags do not exist: {', '.join(unknown)}")
    if len(set(tags)) > _MOST_TAGS:
        raise unprocessable(f"a firewall can have at most {_MOST_TAGS} tags")
    return list(dict.fromkeys(tags))


def _droplets(account: Account, numbers: list[int]) -> list[int]:
    known = {droplet.id for droplet in account.present()}
    if unknown := [number for number in numbers if number not in known]:
        raise unprocessable(f"droplets do not exist: {unknown}")
    return list(dict.fromkeys(numbers))
