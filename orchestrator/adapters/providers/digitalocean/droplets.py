"""Droplets as the API lists and deletes them.

There are two listings: the plain one, which can be asked for a tag, leaves GPU droplets out; the one of GPU droplets
can't be asked for a tag (inferred: do-gpus-not-listed-by-tag). Whatever is looked for is looked for in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.api import Json
from orchestrator.adapters.providers.digitalocean.sizes import parse_price
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
    from orchestrator.adapters.providers.digitalocean.record import MachineRecord
    from orchestrator.adapters.providers.digitalocean.tags import OrderTag


@dataclass(frozen=True, slots=True, kw_only=True)
class Droplet:
    """A droplet of kedge's.

    Attributes:
        status: `new`, `active`, `off` or `archive`.
        ipv4: its public address; empty while it has none.
        volumes: ids of what is attached.
        usd_per_hour: of its size, now.
    """

    id: int
    status: str
    region: str
    created_at: datetime
    tags: tuple[str, ...]
    ipv4: str = ""
    volumes: tuple[str, ...] = ()
    usd_per_hour: Decimal = Decimal(0)

    @property
    def machine_id(self) -> str:
        """The machine that it is; empty where its tag was taken away, or is no machine's."""
        return machine_of(self.tags)

    @property
    def run_id(self) -> str:
        """Whose it is."""
        return run_of(self.tags)

    @property
    def order(self) -> OrderTag:
        """What it says of its order."""
        return order_of(self.tags)


def parse_droplet(fields: Json) -> Droplet:
    """Read a droplet as the API shows it."""
    addresses = (fields.get("networks") or {}).get("v4") or []
    return Droplet(
        id=fields["id"],
        status=fields["status"],
        region=fields["region"]["slug"],
        created_at=datetime.fromisoformat(fields["created_at"]).astimezone(UTC),
        tags=tuple(fields.get("tags") or ()),
        ipv4=next((each["ip_address"] for each in addresses if each.get("type") == "public"), ""),
        volumes=tuple(fields.get("volume_ids") or ()),
        usd_per_hour=parse_price((fields.get("size") or {}).get("price_hourly") or 0),
    )


def every_droplet(api: Api) -> Sequence[Droplet]:
    """List all droplets that carry any tag of kedge's, whoever made them."""
    return _find(api, is_kedges)


def droplets_of_run(api: Api, run_id: str) -> Sequence[Droplet]:
    """List a run's droplets."""
    return _find_tagged(api, run_tag(run_id))


def droplets_of_machine(api: Api, machine_id: str) -> Sequence[Droplet]:
    """List the droplets that carry a machine's tag, the oldest first: more than one where two requests were made."""
    return _find_tagged(api, machine_tag(machine_id))


def read_droplet(api: Api, droplet_id: int) -> Droplet | None:
    """Look one droplet up; None where the API doesn't know it: gone, or too young."""
    body = api.read(f"droplet {droplet_id} can't be looked at", api.client.droplets.get, droplet_id)
    return parse_droplet(body["droplet"]) if body else None


def read_recorded(api: Api, record: MachineRecord | None) -> Droplet | None:
    """Look up the droplet whose id a record has, whatever the listings and its tags say; None without one."""
    if record is None or not record.droplet_id:
        return None
    droplet = read_droplet(api, record.droplet_id)
    return identify(droplet, record) if droplet else None


def identify(droplet: Droplet, record: MachineRecord) -> Droplet:
    """Give a droplet the tags that it was made with: anybody may take them away in the control panel."""
    return replace(droplet, tags=tuple(dict.fromkeys((*record.tags, *droplet.tags))))


def delete_droplet(api: Api, droplet_id: int) -> bool:
    """Ask for a droplet's deletion; False where the API doesn't know it."""
    return api.delete(f"droplet {droplet_id} can't be deleted", api.client.droplets.destroy, droplet_id)


def _find_tagged(api: Api, tag: str) -> Sequence[Droplet]:
    wanted = tag.lower()
    return _find(api, lambda tags: any(each.lower() == wanted for each in tags), tag_name=tag)


def _find(api: Api, is_wanted: Callable[[Sequence[str]], bool], **plainly: str) -> Sequence[Droplet]:
    """Look through both listings.

    Args:
        api: the way to the account.
        is_wanted: tells by a droplet's tags.
        plainly: what the plain listing can be asked for, and the one of GPU droplets can't.

    Raises:
        ApiError: one doesn't answer. What may be billing there is never left out in silence.
    """
    what = "the droplets can't be listed"
    plain = api.pages(what, api.client.droplets.list, "droplets", **plainly)
    found = {fields["id"]: fields for fields in plain}
    found |= {fields["id"]: fields for fields in api.pages(what, api.client.droplets.list, "droplets", type="gpus")}
    return [parse_droplet(found[each]) for each in sorted(found) if is_wanted(found[each].get("tags") or ())]
