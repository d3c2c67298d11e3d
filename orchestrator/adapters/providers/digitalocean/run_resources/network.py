"""A run's firewall: it admits the caller to port 22, the run's own droplets to each other, and lets everything out.

It applies to everything with the run's tag, so that a droplet is closed from its first second.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.host.ids import fit
from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.providers.digitalocean.tags import run_of, run_tag
from orchestrator.adapters.rest.failures import RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)

_APPLIED_IN = timedelta(seconds=30)
_ANYWHERE = ["0.0.0.0/0", "::/0"]
_ALL_TRAFFIC = (("icmp", "0"), ("tcp", "all"), ("udp", "all"))


def firewall_name(run_id: str) -> str:
    """Return the name of a run's firewall: letters, digits, dots and dashes."""
    return fit(f"kedge-{run_id.replace('_', '-')}")


def render_firewall(run_id: str, ssh_from: str, *, peers: bool) -> Json:
    """Render a run's firewall; with `peers` it admits the run's droplets to each other, also in their private network.

    fact: do-firewall-peers. fact: do-private-network.
    """
    own = {"tags": [run_tag(run_id)]}
    among = [{"protocol": name, "ports": ports, "sources": own} for name, ports in _ALL_TRAFFIC] if peers else []
    return {
        "name": firewall_name(run_id),
        "inbound_rules": [{"protocol": "tcp", "ports": "22", "sources": {"addresses": [ssh_from]}}, *among],
        "outbound_rules": [
            {"protocol": name, "ports": ports, "destinations": {"addresses": _ANYWHERE}} for name, ports in _ALL_TRAFFIC
        ],
        "tags": [run_tag(run_id)],
    }


def make_firewall(api: Api, run_id: str, ssh_from: str, *, peers: bool) -> str:
    """Create a run's firewall, or let an existing one admit only this network; return its id.

    Raises:
        ApiError: the API doesn't allow it.
    """
    there = find_firewalls(api, run_id)
    if there:
        return set_firewall(api, there[0], run_id, ssh_from, peers=peers)
    body = render_firewall(run_id, ssh_from, peers=peers)
    what = f"the firewall of run {run_id} can't be made"
    try:
        return str(api.create(what, api.client.firewalls.create, body)["firewall"]["id"])
    except RefusedError:
        # Names of firewalls are unique: another command has just created it.
        there = find_firewalls(api, run_id)
        if not there:
            raise
        return set_firewall(api, there[0], run_id, ssh_from, peers=peers)


def set_firewall(api: Api, firewall_id: str, run_id: str, ssh_from: str, *, peers: bool) -> str:
    """Admit this network in place of the one before; create the firewall again if it is gone. Return its id.

    Raises:
        ApiError: the API doesn't allow it.
    """
    what = f"machines of run {run_id} can't be opened to {ssh_from}"
    body = render_firewall(run_id, ssh_from, peers=peers)
    if api.read(what, api.client.firewalls.update, firewall_id, body) is not None:
        return firewall_id
    return make_firewall(api, run_id, ssh_from, peers=peers)


def await_applied(api: Api, clock: Clock, firewall_id: str) -> None:
    """Wait until a firewall's changes have reached its droplets; a timeout is only logged.

    Raises:
        ApiError: the API refuses, or doesn't answer.
    """
    what = f"firewall {firewall_id} can't be read"

    def is_applied() -> bool:
        body = api.read(what, api.client.firewalls.get, firewall_id) or {}
        return not (body.get("firewall") or {}).get("pending_changes")

    if not poll_until(is_applied, _APPLIED_IN, clock):
        _log.warning("firewall %s still has changes that its droplets don't have yet", firewall_id)


def find_firewalls(api: Api, run_id: str) -> list[str]:
    """Find a run's firewalls by name and tag: the name or the tag alone could be on somebody else's firewall."""
    listed = api.pages("the firewalls can't be listed", api.client.firewalls.list, "firewalls")
    return [
        str(fields["id"]) for fields in listed if is_own(fields) and run_of(fields["tags"]).lower() == run_id.lower()
    ]


def is_own(fields: Json) -> bool:
    """Tell whether kedge created a firewall: its name and its tag must name the same run."""
    return str(fields["name"]).lower() == firewall_name(run_of(fields.get("tags") or ())).lower()


def remove_firewalls(api: Api, run_id: str) -> list[str]:
    """Remove a run's firewalls; return a line for each.

    Raises:
        ApiError: the API doesn't allow it.
    """
    found = find_firewalls(api, run_id)
    for each in found:
        api.delete(f"firewall {each} can't be removed", api.client.firewalls.delete, each)
    return [f"removed firewall {each}" for each in found]
