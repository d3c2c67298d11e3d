"""Lists a site's offers for the life cycle, in the region of existing volumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.market import OfferList
from orchestrator.adapters.cloud.volumes.find import locate_volumes
from orchestrator.adapters.providers.digitalocean.market.catalog import read_catalog, read_snapshot, refresh_snapshot
from orchestrator.adapters.providers.digitalocean.market.offers import plan_offers
from orchestrator.adapters.providers.digitalocean.market.room import plan_room
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import VolumeApi
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.core.job import Resources
    from orchestrator.core.ports import Clock


class DoMarket:
    """Implements `OfferSource`, whose methods say what they do.

    Args:
        api: the account's API.
        volumes: its data volumes.
        clock: for the date of a snapshot.
        sister: another site to recommend, if it sells what this one doesn't; empty for none.
    """

    def __init__(self, api: Api, volumes: VolumeApi, clock: Clock, sister: str = "") -> None:
        self._api = api
        self._volumes = volumes
        self._clock = clock
        self._sister = sister

    def offers(self, resources: Resources) -> OfferList:
        """List the cheapest first."""
        catalog = read_catalog(self._api)
        placed = self._place(resources) if catalog.is_live else resources
        offers = plan_offers(catalog, placed, self._api.site.name, _sold_elsewhere(placed, self._sister))
        remark = plan_room(self._api, resources.num_nodes) if catalog.is_live else ""
        return OfferList(offers=offers, basis=catalog.basis, caveats=(remark,) if remark else ())

    def refresh(self) -> str:
        """Rewrite the site's part of the snapshot; it stays as it was if the API can't be reached."""
        return refresh_snapshot(self._api, self._clock)

    def _place(self, resources: Resources) -> Resources:
        """Restrict the requirements to the region of existing volumes: machines elsewhere couldn't use them."""
        placed, region = locate_volumes(self._volumes, resources)
        return replace(placed, regions=(region,)) if region else placed


def _sold_elsewhere(resources: Resources, sister: str) -> str:
    """Recommend the sister site if its snapshot has what the job needs; else return an empty string."""
    if not sister or resources.instance_type is not None or resources.accelerators is None or resources.volumes:
        return ""
    anywhere = replace(resources, regions=())
    try:
        plan_offers(read_snapshot(sister), anywhere, sister)
    except KedgeError:
        return ""
    return f"the AMD Developer Cloud sells it: --provider {sister}"
