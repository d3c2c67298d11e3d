"""Lists AWS's offers for the life cycle, in the place of existing volumes and snapshots."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.market import OfferList
from orchestrator.adapters.cloud.volumes.find import locate_volumes
from orchestrator.adapters.providers.aws.market.offers import Listing, list_offers, why_offline
from orchestrator.adapters.providers.aws.market.refresh import refresh_snapshot
from orchestrator.adapters.providers.aws.run_resources.resources import isolation_caveats
from orchestrator.adapters.providers.aws.volumes.restoring import place_snapshots
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes
from orchestrator.core.errors import KedgeError

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
        try:
            listing, once_usd = self._list_placed(resources)
        except KedgeError as err:
            if not why_offline(err):
                raise
            listing, once_usd = self._list_offline(resources, err), Decimal(0)
        return OfferList(
            offers=tuple(replace(offer, once_usd=once_usd) for offer in listing.offers),
            basis="; ".join((listing.basis, *listing.notes)),
            caveats=isolation_caveats(aws),
        )

    def refresh(self) -> str:
        """Rewrite the snapshot of prices; the old one stays if AWS can't be queried."""
        wrote = refresh_snapshot(self._aws.session, self._aws.clock)
        return f"{wrote['path']}: {wrote['basis']}, {wrote['prices']} prices"

    def _list_placed(self, resources: Resources) -> tuple[Listing, Decimal]:
        aws = self._aws
        placed, zone = locate_volumes(AwsVolumes(aws.session), resources)
        placed, once_usd = place_snapshots(placed, aws.session, zone)
        return list_offers(placed, aws.session, aws.clock, aws.cache_dir, volume_zone=zone), once_usd

    def _list_offline(self, resources: Resources, err: KedgeError) -> Listing:
        """Take the volumes for new, blank ones: AWS doesn't tell which there are, and nothing is launched from this.

        Raises:
            KedgeError: that error, if a volume comes from a snapshot, whose size isn't known, or if AWS answers now.
        """
        aws = self._aws
        if any(spec.snapshot_id for spec in resources.volumes):
            raise err
        listing = list_offers(resources, aws.session, aws.clock, aws.cache_dir)
        if any(offer.live for offer in listing.offers):
            raise err
        return replace(listing, notes=(*listing.notes, "the data volumes count as new ones, in any zone"))
