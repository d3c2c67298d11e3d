"""Offers of DigitalOcean, from the live sizes or from the snapshot."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.providers.digitalocean.market import catalog
from orchestrator.adapters.providers.digitalocean.market.sizes import gpu_name, parse_size
from orchestrator.adapters.providers.digitalocean.site import Site
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.adapters.digitalocean.world import DoWorld, offers, offline, volume


def test_a_gpu_is_offered_in_every_region_that_has_it(do: DoWorld) -> None:
    """The offer has everything that a plan shows: price, GPUs, memory, disk."""
    tor1, nyc2 = offers(do, "MI300X:1", regions=("tor1", "nyc2"))
    assert (tor1.region, nyc2.region) == ("tor1", "nyc2")
    assert tor1.provider == "do"
    assert tor1.accelerators == Accelerators(name="mi300x", count=1)
    assert (tor1.gpu_memory_gib, tor1.cpus, tor1.memory_gib, tor1.disk_gib) == (192, 20, 240, 720)
    assert (tor1.usd_per_hour, tor1.worst_usd_per_hour) == (Decimal("2.59"), Decimal("2.59"))
    assert tor1.place == "do/tor1"


def test_the_offer_of_a_gpu_droplet_includes_its_scratch_disk(do: DoWorld) -> None:
    """It is separate from the root disk."""
    (offer,) = offers(do, "mi300x", regions=("tor1",))
    assert (offer.disk_gib, offer.local_disk_gib) == (720, 5120)


def test_the_memory_of_eight_gpus_is_stated_for_each_gpu(do: DoWorld) -> None:
    """The API states the sum."""
    (eight,) = offers(do, "mi300x:8")
    assert (eight.gpu_memory_gib, eight.usd_per_hour) == (192, Decimal("20.72"))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("amd_mi300x", "mi300x"),
        ("nvidia_h100", "h100"),
        ("nvidia_l40s", "l40s"),
        ("nvidia_rtx4000_ada", "rtx4000-ada"),
        ("nvidia_4000ada", "rtx4000-ada"),
        ("4000ada", "rtx4000-ada"),
        ("amd_mi450_new", "mi450-new"),
    ],
)
def test_gpus_have_the_names_that_skypilot_uses(model: str, name: str) -> None:
    """So a task file for SkyPilot works here. An unknown model keeps the API's name."""
    assert gpu_name(model) == name


def test_a_size_without_gpu_info_is_read_from_its_slug(do: DoWorld) -> None:
    """The AMD Developer Cloud's sizes end in -devcloud, spot ones in -spot."""
    shared = {"vcpus": 20, "memory": 245760, "disk": 720, "price_hourly": 1.99, "regions": ["atl1"]}
    devcloud = parse_size({"slug": "gpu-mi300x8-1536gb-devcloud", **shared})
    spot = parse_size({"slug": "gpu-mi350x1-288gb-spot", **shared})
    plain = parse_size({"slug": "s-2vcpu-4gb", **shared})
    assert (devcloud.gpu, devcloud.gpus, devcloud.gpu_memory_gib) == ("mi300x", 8, 192)
    assert (spot.gpu, spot.is_spot, devcloud.is_spot) == ("mi350x", True, False)
    assert plain.accelerators is None


def test_a_price_is_what_the_price_list_says(do: DoWorld) -> None:
    """The API sends a number that was converted to single precision. fact: do-price-float."""
    fields = {"slug": "s", "vcpus": 1, "memory": 1024, "disk": 25, "regions": [], "price_hourly": 0.00743999984115362}
    assert parse_size(fields).usd_per_hour == Decimal("0.00744")


def test_a_size_that_is_listed_without_regions_is_no_offer(do: DoWorld) -> None:
    """`available` is true, but `regions` is empty."""
    with pytest.raises(NoCapacityError, match="doesn't offer mi325x:1") as caught:
        offers(do, "mi325x")
    assert "offered nowhere" in caught.value.why


def test_a_size_that_is_not_available_is_no_offer_even_with_regions(do: DoWorld) -> None:
    """`available` is false, but `regions` is not empty."""
    do.api.change_size("gpu-l40sx1-48gb", available=False)
    with pytest.raises(NoCapacityError):
        offers(do, "l40s")


def test_the_error_for_a_region_without_the_gpu_names_the_regions_with_it(do: DoWorld) -> None:
    """It is not a bad request, because the region may have the GPU tomorrow."""
    with pytest.raises(NoCapacityError) as caught:
        offers(do, "l40s", regions=("nyc2",))
    assert caught.value.why == "it is offered in tor1"


def test_the_error_for_an_unknown_name_suggests_the_nearest(do: DoWorld) -> None:
    """For a GPU, a region, a zone and a size."""
    with pytest.raises(BadRequestError, match="did you mean mi300x"):
        offers(do, "mi300")
    with pytest.raises(BadRequestError, match="did you mean tor1"):
        offers(do, regions=("tor",))
    with pytest.raises(BadRequestError, match="no zone"):
        offers(do, zone="tor1-a")
    with pytest.raises(BadRequestError, match="s-999"):
        offers(do, instance_type="s-999")
    with pytest.raises(BadRequestError, match="h100:3"):
        offers(do, "h100:3")


def test_without_requirements_small_machines_are_offered_cheapest_first(do: DoWorld) -> None:
    """They have at least two CPUs and 4 GiB, and no GPU."""
    found = offers(do)
    assert found[0].instance_type == "s-2vcpu-4gb"
    assert all(offer.accelerators is None and offer.cpus >= 2 for offer in found)
    assert [offer.usd_per_hour for offer in found] == sorted(offer.usd_per_hour for offer in found)


def test_spot_machines_are_offered_only_on_request(do: DoWorld) -> None:
    """Otherwise on-demand machines are offered. A spot price may rise to the on-demand price, if there is one."""
    do.api.change_size("gpu-mi325x1-256gb", slug="gpu-mi350x1-288gb", regions=("tor1",))
    (spot,) = offers(do, "mi350x", use_spot=True)
    assert (spot.instance_type, spot.spot, spot.cap_usd_per_hour) == (
        "gpu-mi350x1-288gb-spot",
        True,
        Decimal("3.8"),
    )
    with pytest.raises(NoCapacityError, match="that fits") as caught:
        offers(do, "mi355x")
    assert "a spot machine" in caught.value.why
    (named,) = offers(do, instance_type="gpu-mi355x1-288gb-spot")
    assert named.spot


def test_what_costs_more_than_the_limit_is_left_out(do: DoWorld) -> None:
    """If nothing is left, the error says what it would cost."""
    assert offers(do, "h100", max_usd_per_hour=Decimal("4.41"))
    with pytest.raises(NoCapacityError) as caught:
        offers(do, "h100", max_usd_per_hour=Decimal(4))
    assert "$4.41" in caught.value.why


def test_a_disk_size_that_no_droplet_has_gives_no_offer(do: DoWorld) -> None:
    """A droplet's size determines its disk."""
    with pytest.raises(NoCapacityError, match="that fits"):
        offers(do, "mi300x", disk_gib=5000)


def test_data_volumes_are_part_of_the_price(do: DoWorld) -> None:
    """$0.10 per GiB and month. The worst case includes them."""
    scans = replace(volume(), size_gib=100)
    (offer,) = offers(do, "mi300x", regions=("tor1",), volumes=(scans,))
    assert offer.disk_usd_per_hour == Decimal("0.015")
    assert offer.total_usd_per_hour == Decimal("2.605")


def test_an_ebs_snapshot_is_refused(do: DoWorld) -> None:
    """The volume would be blank. The error names the key to remove."""
    restored = replace(volume(), snapshot_id="snap-0a1b2c3d4e5f60718")
    with pytest.raises(BadRequestError, match="snap-0a1b2c3d4e5f60718") as caught:
        offers(do, "mi300x", regions=("tor1",), volumes=(restored,))
    assert "leave `snapshot`" in caught.value.fix


@pytest.mark.parametrize("requirements", [{"disk_mibps": 500}, {"volumes": (replace(volume(), iops=6000),)}])
def test_a_requested_disk_speed_is_refused(do: DoWorld, requirements: dict[str, Any]) -> None:
    """Only AWS has it. No requirement is silently ignored."""
    with pytest.raises(BadRequestError, match="no IOPS and no throughput") as caught:
        offers(do, "mi300x", regions=("tor1",), **requirements)
    assert "--provider aws" in caught.value.fix


def test_an_existing_volume_pins_the_region(do: DoWorld) -> None:
    """Offers in other regions could not be used. The volume is priced by its own size."""
    do.provider().create(do.order(region="nyc2", volumes=(replace(volume(), size_gib=7),)))
    (offer,) = offers(do, "mi300x", volumes=(volume(),))
    assert (offer.region, offer.disk_usd_per_hour) == ("nyc2", Decimal("0.00105"))
    with pytest.raises(BadRequestError, match="can't be attached"):
        offers(do, "mi300x", regions=("tor1",), volumes=(volume(),))


@pytest.mark.parametrize("name", ["do", "amd"])
def test_without_a_token_the_snapshot_is_used_with_its_date(do: DoWorld, name: str) -> None:
    """A plan can be made offline. It names the source of its prices, and cannot be launched."""
    provider = offline(do, name).provider()
    gpu = "mi300x" if name == "amd" else "h100"
    found = provider.offers(Resources(accelerators=Accelerators(name=gpu, count=1)))
    assert found
    assert all(offer.provider == name and not offer.live for offer in found)
    assert re.search(r"a snapshot of 2026-\d\d-\d\d, from ", provider.offers_basis)
    assert "there is no" in provider.offers_basis
    assert len(do.api.calls) == 0


def test_offers_with_data_volumes_are_in_regions_with_storage(do: DoWorld) -> None:
    """A volume can be attached only in its own region, and not every region has volumes.

    fact: do-volumes-need-storage
    """
    do.api.close_storage("nyc2")
    assert {offer.region for offer in offers(do, "mi300x")} == {"nyc2", "tor1"}
    assert {offer.region for offer in offers(do, "mi300x", volumes=(volume(),))} == {"tor1"}
    with pytest.raises(NoCapacityError, match="no data volumes") as caught:
        offers(do, "mi300x:8", volumes=(volume(),))
    assert "offered in nyc2" in caught.value.why


def test_without_network_the_snapshot_is_used(do: DoWorld) -> None:
    """A refused connection is not a refusal of the API."""
    cut = replace(do, environ={"KEDGE_DIGITALOCEAN_ENDPOINT": "https://127.0.0.1:1"})
    provider = cut.provider()
    assert provider.offers(Resources())
    assert "could not be queried" in provider.offers_basis


def test_with_a_rejected_token_the_snapshot_is_not_used(do: DoWorld) -> None:
    """The user can fix the token."""
    with pytest.raises(KedgeError, match="can't be listed"):
        offers(replace(do, environ={"DIGITALOCEAN_ACCESS_TOKEN": "wrong"}))


def test_a_refresh_replaces_the_prices_of_one_cloud(do: DoWorld, tmp_path: Path) -> None:
    """The other cloud's prices stay. The refreshed snapshot gives the same offers as the live sizes."""
    path = tmp_path / "offers.json"
    shutil.copy(catalog.snapshot_path(), path)
    before = json.loads(path.read_text())
    site = Site(
        name="do", endpoint=do.api.endpoint, token=do.api.token, token_names=("T",), ca_file=str(do.api.ca_file)
    )
    said = catalog.refresh_snapshot(Api(site, do.clock), do.clock, path)
    after = json.loads(path.read_text())
    assert str(path) in said
    assert after["amd"] == before["amd"]
    assert after["do"] != before["do"]
    kept = catalog.read_catalog(Api(replace(site, token=""), do.clock), path)
    live = catalog.ask_catalog(Api(site, do.clock))
    assert (set(kept.sizes), set(kept.regions)) == (set(live.sizes), set(live.regions))
    assert set(kept.volume_regions) == set(live.volume_regions)
