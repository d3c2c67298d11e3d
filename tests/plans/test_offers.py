"""What is for sale, as data: each case is a wish, what a provider said that it sells, and the offers that must follow.

recorded/ holds what was said: the snapshots of the day on which the cases were written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchestrator.adapters.providers.aws.market import planning
from orchestrator.adapters.providers.aws.market.catalog import wanted_patterns
from orchestrator.adapters.providers.aws.market.snapshot import read_snapshot
from orchestrator.adapters.providers.digitalocean.market import catalog, offers
from orchestrator.adapters.providers.local import offers as local
from orchestrator.adapters.providers.local.hardware import Computer
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Offer
from tests.plans.cases import read_cases

RECORDED = Path(__file__).parent / "recorded"


def plan(case: dict[str, Any]) -> tuple[Offer, ...]:
    """Make offers of what the case's provider sold."""
    resources = msgspec.convert(case["wishes"], Resources, strict=False)
    match case["provider"]:
        case "aws":
            wanted_patterns(resources)
            markets = read_snapshot(RECORDED / "aws.json").markets(resources, case["regions"], resources.zone)
            return planning.plan_offers(markets, resources, zone=resources.zone)
        case "local":
            local.refuse_unknown(resources)
            return local.plan_offers(msgspec.convert(case["computer"], Computer), resources)
        case site:
            sold = catalog.read_snapshot(site, RECORDED / "digitalocean.json")
            return offers.plan_offers(sold, resources, site, case["elsewhere"])


def line(offer: Offer) -> str:
    """Write an offer as the cases do: where, what, and what an hour costs and may cost."""
    gpus = f", {offer.accelerators} of {offer.gpu_memory_gib:g} GiB" if offer.accelerators else ""
    place = f"{offer.region}/{offer.zone}" if offer.zone else offer.region
    worst = "" if offer.worst_usd_per_hour == offer.total_usd_per_hour else f", at worst ${offer.worst_usd_per_hour}"
    return f"{place} {offer.instance_type}{gpus}, {offer.disk_gib} GiB: ${offer.total_usd_per_hour}{worst}"


@pytest.mark.parametrize("case", read_cases("offers"))
def test_offers(case: dict[str, Any]) -> None:
    """The case's offers follow from its wishes, in their order, or the refusal that it names."""
    if "refused" in case:
        with pytest.raises(KedgeError) as caught:
            plan(case)
        assert type(caught.value).__name__ == case["refused"]["error"]
        assert case["refused"]["says"] in str(caught.value)
        assert caught.value.fix
        return
    assert [line(offer) for offer in plan(case)][: case["shown"]] == case["offers"]
