"""The offers of the fake cloud."""

from __future__ import annotations

from decimal import Decimal

from orchestrator.adapters.cloud.market import OfferList, OfferSource
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources
from tests.support.fake_cloud.account import HERE, FakeCloud
from tests.support.orders import make_offer


class FakeMarket(OfferSource):
    """One type in the one region, without accelerators."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._name = cloud.traits.name

    def offers(self, resources: Resources) -> OfferList:
        """Offer it if no accelerators are required."""
        if not set(resources.regions) <= {HERE}:
            raise BadRequestError(f"there are no regions {resources.regions}")
        offer = make_offer(self._name, "large", HERE, usd_per_hour=Decimal(2))
        return OfferList(
            offers=() if resources.accelerators else (offer,),
            basis="an old list",
            caveats=("the account shares its role",),
        )

    def refresh(self) -> str:
        """Return where a new list would be stored."""
        return "nowhere"
