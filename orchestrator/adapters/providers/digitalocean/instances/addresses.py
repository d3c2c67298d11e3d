"""Releases reserved addresses with their droplets: an address without a droplet only costs money."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.rest.failures import ApiError, BusyError, RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api

_log = logging.getLogger(__name__)


def reserved_addresses(api: Api, droplet_ids: Collection[str]) -> list[str]:
    """List the reserved addresses of some droplets; none if the token may not list them.

    Raises:
        BusyError: the API answers that there are too many requests.
        UnclearError: the API doesn't answer.
    """
    what = "the reserved addresses can't be listed"
    try:
        listed = list(api.pages(what, api.client.reserved_ips.list, "reserved_ips"))
    except BusyError:
        raise
    except RefusedError as err:
        _log.warning("%s: %s", err.what, err.why)
        return []
    return [str(fields["ip"]) for fields in listed if str((fields.get("droplet") or {}).get("id")) in droplet_ids]


def release_addresses(api: Api, addresses: Sequence[str]) -> list[str]:
    """Release addresses; return those that can't be released yet, because a droplet still has them."""
    return [address for address in addresses if not _release(api, address)]


def _release(api: Api, address: str) -> bool:
    try:
        api.delete(f"the address {address} can't be released", api.client.reserved_ips.delete, address)
    except ApiError as err:
        _log.info("%s: %s", err.what, err.why)
        return False
    return True
