"""Firewalls, as far as packets between droplets are concerned: what comes in. What goes out may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.digitalocean.account.views import private_address
from tests.cloudbox.machines.network import Admission

_EVERY_PORT = ("", "0", "all")


def has_peers(account: Account, droplet: Droplet) -> bool:
    """Tell whether other droplets are admitted, by a tag or an id."""
    return any(rule["sources"].get(by) for rule in _rules(account, droplet) for by in ("tags", "droplet_ids"))


def admissions(account: Account, droplet: Droplet) -> tuple[Admission, ...]:
    """Return who is admitted to a droplet. fact: do-firewall-peers."""
    return tuple(_admission(account, droplet, rule) for rule in _rules(account, droplet))


def _admission(account: Account, droplet: Droplet, rule: Mapping[str, Any]) -> Admission:
    ports = str(rule.get("ports") or "")
    first, _, last = ports.partition("-")
    return Admission(
        sources=tuple(_sources(account, droplet, rule["sources"])),
        protocol=rule["protocol"],
        ports=None if ports in _EVERY_PORT else (int(first), int(last or first)),
    )


def _sources(account: Account, droplet: Droplet, sources: Mapping[str, Any]) -> Iterator[str]:
    yield from (each for each in sources.get("addresses") or () if ":" not in each)
    tags, ids = set(sources.get("tags") or ()), sources.get("droplet_ids") or ()
    for other in account.present():
        if other.vpc_uuid == droplet.vpc_uuid and (other.id in ids or not tags.isdisjoint(other.tags)):
            yield private_address(account, other)


def _rules(account: Account, droplet: Droplet) -> list[dict[str, Any]]:
    there = [firewall for firewall in account.firewalls.values() if firewall.concerns(droplet)]
    return [rule for firewall in there for rule in firewall.inbound_rules]
