"""Lists AWS's offers for the life cycle, in the place of existing volumes and snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.market import OfferList
from orchestrator.adapters.cloud.volumes.find import locate_volumes
from orchestrator.adapters.providers.aws.market.offers import list_offers
from orchestrator.adapters.providers.aws.market.refresh import refresh_snapshot
from orchestrator.adapters.providers.aws.run_resources.resources import isolation_caveats
from orchestrator.adapters.providers.aws.volumes.restoring import place_snapshots
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.context import AwsContext
    from orchestrator.core.job import Resources


class AwsMarket:
    """Implements `OfferSource`, whose methods say what they do."""

    def __init__(self, aws: AwsContext) -> None:
        self._aws = aws

    def offers(self, resources: Resources) -> OfferList:
        """List the cheapest first."""
        aws = self._aws
        placed, zone = locate_volumes(AwsVolumes(aws.session), resources)
        placed, once_usd = place_snapshots(placed, aws.session, zone)
        listing = list_offers(placed, aws.session, aws.clock, aws.cache_dir, volume_zone=zone)
        return OfferList(
            offers=tuple(replace(offer, once_usd=once_usd) for offer in listing.offers),
            basis="; ".join((listing.basis, *listing.notes)),
            caveats=isolation_caveats(aws),
        )

    def refresh(self) -> str:
        """Rewrite the snapshot of prices; the old one stays if AWS can't be queried."""
        wrote = refresh_snapshot(self._aws.session, self._aws.clock)
        return f"{wrote['path']}: {wrote['basis']}, {wrote['prices']} prices"
