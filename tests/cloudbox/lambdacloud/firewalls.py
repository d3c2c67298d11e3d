"""Firewall rules: those of the whole account, and rulesets that launches name. They don't affect real packets.

Lambda doesn't document whether a ruleset replaces the account's rules or adds to them.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

from tests.cloudbox.lambdacloud.account import Account, show_region
from tests.cloudbox.lambdacloud.catalogue import REGIONS
from tests.cloudbox.lambdacloud.cloud import Cloud
from tests.cloudbox.lambdacloud.errors import LambdaError, invalid, missing
from tests.cloudbox.lambdacloud.resources import iso
from tests.cloudbox.lambdacloud.state import Ruleset, new_id
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/api/v1")

_MOST_RULESETS = 50
"""The description has a refusal for too many, but no limit, so this limit is invented."""


@routes.on("GET", "/firewall-rules")
def list_rules(cloud: Cloud, call: Call) -> Answer:
    """List the account's rules."""
    return Answer(body={"data": cloud.account.global_rules})


@routes.on("PUT", "/firewall-rules")
def replace_rules(cloud: Cloud, call: Call) -> Answer:
    """Replace all of the account's rules. fact: lambda-global-rules-are-everybodys."""
    _change_global(cloud, call.body["data"])
    return Answer(body={"data": cloud.account.global_rules})


@routes.on("GET", "/firewall-rulesets/global")
def get_global(cloud: Cloud, call: Call) -> Answer:
    """Show the account's rules as a ruleset."""
    return Answer(body={"data": {"id": "global", "name": "Global", "rules": cloud.account.global_rules}})


@routes.on("PATCH", "/firewall-rulesets/global")
def change_global(cloud: Cloud, call: Call) -> Answer:
    """Replace the account's rules."""
    if "rules" in call.body:
        _change_global(cloud, call.body["rules"])
    return get_global(cloud, call)


@routes.on("GET", "/firewall-rulesets")
def list_rulesets(cloud: Cloud, call: Call) -> Answer:
    """List the rulesets that launches may name."""
    return Answer(body={"data": [_show(cloud.account, one) for one in cloud.account.rulesets.values()]})


@routes.on("POST", "/firewall-rulesets")
def create_ruleset(cloud: Cloud, call: Call) -> Answer:
    """Create a ruleset in a region; names aren't unique."""
    account, body = cloud.account, call.body
    if body["region"] not in REGIONS:
        raise invalid("unknown region")
    if len(account.rulesets) >= _MOST_RULESETS:
        raise LambdaError("global/quota-exceeded")
    rules = _checked(body["rules"])
    now = account.clock.now()
    made = Ruleset(id=new_id(), name=body["name"], region=body["region"], created_at=now, rules=rules)
    account.rulesets[made.id] = made
    return Answer(body={"data": _show(account, made)})


@routes.on("GET", "/firewall-rulesets/{id}")
def get_ruleset(cloud: Cloud, call: Call) -> Answer:
    """Show a ruleset."""
    return Answer(body={"data": _show(cloud.account, _find(cloud, call))})


@routes.on("PATCH", "/firewall-rulesets/{id}")
def change_ruleset(cloud: Cloud, call: Call) -> Answer:
    """Change a ruleset's name or rules, also for running instances."""
    ruleset = _find(cloud, call)
    ruleset.rules = _checked(call.body.get("rules", ruleset.rules))
    ruleset.name = call.body.get("name", ruleset.name)
    return Answer(body={"data": _show(cloud.account, ruleset)})


@routes.on("DELETE", "/firewall-rulesets/{id}")
def delete_ruleset(cloud: Cloud, call: Call) -> Answer:
    """Delete a ruleset that no instance uses, not even a terminating one."""
    ruleset = _find(cloud, call)
    if cloud.account.users("ruleset", ruleset.id):
        raise LambdaError("firewall-rulesets/firewall-ruleset-in-use")
    del cloud.account.rulesets[ruleset.id]
    return Answer(body={"data": {}})


def _change_global(cloud: Cloud, rules: list[dict[str, Any]]) -> None:
    cloud.account.global_rules = _checked(rules)
    if not cloud.account.settings.may_change_global_rules:
        cloud.misuse.append("the firewall rules of the whole account were changed")


def _find(cloud: Cloud, call: Call) -> Ruleset:
    found = cloud.account.rulesets.get(call.params["id"])
    if found is None:
        raise missing("firewall ruleset")
    return found


def _checked(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return valid rules, after checks of networks and ports that the description can't express."""
    for rule in rules:
        ports = rule.get("port_range")
        if (rule["protocol"] in ("tcp", "udp")) != bool(ports) or (ports and ports[0] > ports[1]):
            raise invalid("port_range must be in order, of tcp and udp only")
        try:
            IPv4Network(rule["source_network"])
        except ValueError as err:
            raise invalid("source_network must be an IPv4 network") from err
    return [dict(rule) for rule in rules]


def _show(account: Account, one: Ruleset) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "region": show_region(one.region),
        "rules": one.rules,
        "created": iso(one.created_at),
        "instance_ids": [each.id for each in account.users("ruleset", one.id)],
    }
