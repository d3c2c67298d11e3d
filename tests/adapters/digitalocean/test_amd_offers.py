"""Offers of AMD's GPUs at DigitalOcean and at the AMD Developer Cloud."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from orchestrator.core.errors import KedgeError, NoCapacityError
from tests.adapters.digitalocean.world import DoWorld, offers, offline, volume


def test_the_amd_developer_cloud_has_its_own_sizes(do: DoWorld, amd: DoWorld) -> None:
    """The same GPU has another slug there, live and in the snapshot, at the same price.

    fact: amd-devcloud-sizes
    """
    for world in (amd, offline(do, "amd")):
        (offer,) = offers(world, "mi300x")
        assert (offer.instance_type, offer.region) == ("gpu-mi300x1-192gb-devcloud", "atl1")
        assert offer.usd_per_hour == Decimal("1.99")


def sell_no_mi300x(do: DoWorld) -> None:
    for slug in ("gpu-mi300x1-192gb", "gpu-mi300x8-1536gb"):
        do.api.sell(slug)


@pytest.mark.parametrize("offered", ["listed in no region", "not listed", "offline"])
def test_the_error_for_an_unavailable_mi300x_names_the_amd_developer_cloud(do: DoWorld, offered: str) -> None:
    """In some months DigitalOcean does not sell it.

    fact: do-listed-not-offered
    """
    sell_no_mi300x(do)
    if offered == "not listed":
        for slug in ("gpu-mi300x1-192gb", "gpu-mi300x8-1536gb"):
            del do.api.cloud.account.sizes[slug]
    world = offline(do) if offered == "offline" else do
    for gpu in ("mi300x", "MI300X:8"):
        with pytest.raises(KedgeError) as caught:
            offers(world, gpu)
        assert caught.value.fix == "the AMD Developer Cloud sells it: --provider amd"


@pytest.mark.parametrize(
    ("gpu", "requirements"),
    [
        ("mi325x", {}),
        ("mi300x", {"use_spot": True}),
        ("mi300x", {"max_usd_per_hour": Decimal(1)}),
        ("mi300x", {"volumes": (volume(),)}),
        ("mi300x:2", {}),
    ],
    ids=["another GPU", "spot", "too expensive", "with volumes", "another number"],
)
def test_the_error_does_not_name_the_amd_developer_cloud_if_it_has_no_offer_either(
    do: DoWorld, gpu: str, requirements: dict[str, Any]
) -> None:
    """Advice that would fail as well does not help."""
    sell_no_mi300x(do)
    with pytest.raises(KedgeError) as caught:
        offers(do, gpu, **requirements)
    assert "--provider" not in caught.value.fix


def test_the_error_does_not_name_the_amd_developer_cloud_if_digitalocean_sells_mi300x(do: DoWorld) -> None:
    """For a region without it, the error names the regions that have it."""
    with pytest.raises(NoCapacityError) as caught:
        offers(do, "mi300x", regions=("ams3",))
    assert "--provider" not in caught.value.fix
