"""Lists, reads and deletes droplets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Instance, Phase, Wanted
from orchestrator.adapters.providers.digitalocean.api import Json
from orchestrator.adapters.providers.digitalocean.listing import read_droplets
from orchestrator.adapters.providers.digitalocean.market.sizes import parse_price
from orchestrator.adapters.providers.digitalocean.tagging import put_tag, take_tag
from orchestrator.adapters.providers.digitalocean.tags import (
    is_kedges,
    machine_of,
    machine_tag,
    moved_tags,
    order_of,
    run_of,
    run_tag,
)
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api


_PHASES = {"new": Phase.PENDING, "active": Phase.RUNNING, "off": Phase.OFF, "archive": Phase.OFF}


def parse_instance(fields: Json) -> Instance:
    """Parse a droplet."""
    addresses = (fields.get("networks") or {}).get("v4") or []
    tags = tuple(fields.get("tags") or ())
    order = order_of(tags)
    return Instance(
        id=str(fields["id"]),
        region=fields["region"]["slug"],
        machine_id=machine_of(tags),
        run_id=run_of(tags),
        phase=_PHASES.get(fields["status"], Phase.UNKNOWN),
        created_at=datetime.fromisoformat(fields["created_at"]).astimezone(UTC),
        lifetime=order.lifetime,
        attempt=order.attempt,
        # Ids grow with time.
        seniority=f"{fields['id']:020}",
        host=_address(addresses, "public"),
        # fact: do-private-network
        private_host=_address(addresses, "private"),
        usd_per_hour=order.usd_per_hour,
        list_usd_per_hour=parse_price((fields.get("size") or {}).get("price_hourly") or 0),
    )


def _address(addresses: Sequence[Json], kind: str) -> str:
    return next((each["ip_address"] for each in addresses if each.get("type") == kind), "")


def list_droplets(api: Api, wanted: Wanted) -> Sequence[Instance]:
    """List droplets by their tags, the oldest first; two requests for one machine give two droplets.

    Without a run or a machine, all droplets with one of kedge's tags are listed, whoever created them.
    """
    if wanted.machine_id:
        return _find_tagged(api, machine_tag(wanted.machine_id))
    return _find_tagged(api, run_tag(wanted.run_id)) if wanted.run_id else _find(api, is_kedges)


def read_droplet(api: Api, droplet_id: str) -> Instance | None:
    """Read one droplet; None if the API doesn't know it: it is gone, or too young."""
    body = api.read(f"droplet {droplet_id} can't be read", api.client.droplets.get, int(droplet_id))
    return parse_instance(body["droplet"]) if body else None


def mark_lifetime(api: Api, droplet_id: str, lifetime: timedelta) -> None:
    """Replace a droplet's order tag by one with another lifetime, the new one first."""
    what = f"droplet {droplet_id} can't be tagged"
    body = api.read(what, api.client.droplets.get, int(droplet_id)) or {}
    tags = (body.get("droplet") or {}).get("tags") or ()
    resource = {"resource_id": droplet_id, "resource_type": "droplet"}
    moved = moved_tags(tags, lifetime)
    if not moved:
        raise KedgeError(what, why="it has lost its tag with the lifetime")
    for tag in set(moved.values()) - set(tags):
        put_tag(api, tag, what, resource)
    for tag in moved.keys() - set(moved.values()):
        take_tag(api, tag, what, resource)


def delete_droplet(api: Api, droplet_id: str) -> bool:
    """Request a droplet's deletion; False if the API doesn't know it."""
    return api.delete(f"droplet {droplet_id} can't be deleted", api.client.droplets.destroy, int(droplet_id))


def _find_tagged(api: Api, tag: str) -> Sequence[Instance]:
    wanted = tag.lower()
    return _find(api, lambda tags: any(each.lower() == wanted for each in tags), tag_name=tag)


def _find(api: Api, is_wanted: Callable[[Sequence[str]], bool], **plainly: str) -> Sequence[Instance]:
    """Search both listings for droplets with such tags."""
    return [parse_instance(each) for each in read_droplets(api, **plainly) if is_wanted(each.get("tags") or ())]
