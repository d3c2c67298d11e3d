"""Lists, reads and deletes droplets.

The API has two listings. The plain one can filter by tag, but leaves GPU droplets out; the one of GPU droplets can't
filter by tag (inferred: do-gpus-not-listed-by-tag). Every search uses both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import Instance, Phase, Wanted
from orchestrator.adapters.providers.digitalocean.api import Json
from orchestrator.adapters.providers.digitalocean.market.sizes import parse_price
from orchestrator.adapters.providers.digitalocean.tags import (
    is_kedges,
    machine_of,
    machine_tag,
    order_of,
    run_of,
    run_tag,
)

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
        host=next((each["ip_address"] for each in addresses if each.get("type") == "public"), ""),
        usd_per_hour=order.usd_per_hour,
        list_usd_per_hour=parse_price((fields.get("size") or {}).get("price_hourly") or 0),
    )


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


def delete_droplet(api: Api, droplet_id: str) -> bool:
    """Request a droplet's deletion; False if the API doesn't know it."""
    return api.delete(f"droplet {droplet_id} can't be deleted", api.client.droplets.destroy, int(droplet_id))


def _find_tagged(api: Api, tag: str) -> Sequence[Instance]:
    wanted = tag.lower()
    return _find(api, lambda tags: any(each.lower() == wanted for each in tags), tag_name=tag)


def _find(api: Api, is_wanted: Callable[[Sequence[str]], bool], **plainly: str) -> Sequence[Instance]:
    """Search both listings.

    Args:
        api: the account's API.
        is_wanted: a predicate on a droplet's tags.
        plainly: filters of the plain listing, which the listing of GPU droplets lacks.

    Raises:
        ApiError: a listing fails. What may be billing is never silently left out.
    """
    what = "the droplets can't be listed"
    plain = api.pages(what, api.client.droplets.list, "droplets", **plainly)
    found = {fields["id"]: fields for fields in plain}
    found |= {fields["id"]: fields for fields in api.pages(what, api.client.droplets.list, "droplets", type="gpus")}
    return [parse_instance(found[each]) for each in sorted(found) if is_wanted(found[each].get("tags") or ())]
