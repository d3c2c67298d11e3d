"""How many droplets the account may still have: machines of a run that don't all fit are refused before the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orchestrator.adapters.providers.digitalocean.listing import read_droplets
from orchestrator.adapters.providers.digitalocean.tags import is_kedges, run_tag
from orchestrator.core.errors import NoCapacityError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.core.machine import MachineOrder

ASK_FOR_MORE = "ask for more in the control panel, under Settings, Resource Limits"


class Room(NamedTuple):
    """The account's droplets (fact: do-droplet-limit).

    Attributes:
        limit: how many it may have.
        there: how many it has.
        of_kedge: those with one of kedge's tags.
        of_run: those of the run in question.
    """

    limit: int
    there: int
    of_kedge: int = 0
    of_run: int = 0


def read_room(api: Api, run_id: str = "") -> Room | None:
    """Read the limit and count the droplets; None if the API doesn't tell this token.

    Raises:
        ApiError: the API refuses, or doesn't answer.
    """
    body = api.read("the account can't be used", api.client.account.get) or {}
    limit = (body.get("account") or {}).get("droplet_limit")
    if limit is None:
        return None
    tags = [each.get("tags") or () for each in read_droplets(api)]
    own = sum(1 for each in tags if run_tag(run_id).lower() in (tag.lower() for tag in each)) if run_id else 0
    return Room(int(limit), len(tags), sum(map(is_kedges, tags)), own)


def require_room(api: Api, order: MachineOrder) -> None:
    """Refuse the first order of several machines that the account has no room for.

    Raises:
        NoCapacityError: not all of them fit.
    """
    if order.rank or order.resources.num_nodes == 1:
        return
    room = read_room(api, order.run_id)
    needed = order.resources.num_nodes
    if room is not None and room.there - room.of_run + needed > room.limit:
        raise _full(room, needed, api.site.name)


def plan_room(api: Api, needed: int) -> str:
    """Return a remark for the plan of several machines if they fit only once other runs have ended; else nothing.

    Some of kedge's droplets may be machines of the same run, which the plan ends first.

    Raises:
        NoCapacityError: they don't fit, whatever ends of kedge's.
    """
    room = read_room(api) if needed > 1 else None
    if room is None or room.there + needed <= room.limit:
        return ""
    if room.there - room.of_kedge + needed > room.limit:
        raise _full(room, needed, api.site.name)
    return (
        f"the account has {room.there} of at most {room.limit} droplets, {room.of_kedge} of them kedge's: {needed} "
        "others fit only if some of these end before"
    )


def _full(room: Room, needed: int, provider: str) -> NoCapacityError:
    return NoCapacityError(
        f"the account at {provider} has no room for {needed} droplets",
        why=f"it may have {room.limit}, and has {room.there}",
        fix=f"end droplets that aren't needed, {ASK_FOR_MORE}, or lower `num_nodes`",
        covers=lambda _offer: True,
    )
