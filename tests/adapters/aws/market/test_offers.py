"""Which machines AWS offers for given requirements, requested over HTTP from the cloud in a box."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from orchestrator.adapters.providers.aws.market import catalog
from orchestrator.adapters.providers.aws.market.planning import plan_offers
from orchestrator.adapters.providers.aws.market.reader import ForSale, RegionMarket
from orchestrator.core.errors import BadRequestError, NoCapacityError
from orchestrator.core.job import Resources
from orchestrator.core.offer import Accelerators
from tests.adapters.aws.market.asking import A10G, Ask
from tests.cloudbox.aws.box import Box


def test_a_gpu_is_offered_as_every_type_that_has_it_in_every_zone(ask: Ask) -> None:
    """One offer for each type and zone, cheapest first. A refused launch tries the next one."""
    offers = ask(accelerators=A10G).offers
    assert {offer.instance_type for offer in offers} == {f"g5.{size}xlarge" for size in ("", "2", "4", "8", "16")}
    assert len({(offer.zone, offer.instance_type) for offer in offers}) == len(offers)
    assert [offer.total_usd_per_hour for offer in offers] == sorted(offer.total_usd_per_hour for offer in offers)
    first = offers[0]
    assert (first.provider, first.region, first.zone) == ("aws", "us-east-1", "us-east-1a")
    assert (first.instance_type, first.usd_per_hour, first.spot) == ("g5.xlarge", Decimal("1.006"), False)
    assert (str(first.accelerators), first.gpu_memory_gib, first.cpus, first.memory_gib) == ("a10g:1", 22.4, 4, 16)


def test_the_number_of_gpus_selects_the_type(ask: Ask) -> None:
    """Two sizes have four A10G. A count that no machine has is refused with the counts that exist."""
    four = ask(accelerators=Accelerators(name="a10g", count=4)).offers
    assert {offer.instance_type for offer in four} == {"g5.12xlarge", "g5.24xlarge"}
    with pytest.raises(BadRequestError, match="a10g:3") as refused:
        ask(accelerators=Accelerators(name="a10g", count=3))
    assert "g5.48xlarge a10g:8" in refused.value.why


def test_a_region_without_the_count_doesnt_hide_one_that_has_it() -> None:
    """Fewer regions sell one H100 than eight."""
    eight = catalog.InstanceType(name="p5.48xlarge", gpu="h100", gpus=8, gpu_memory_gib=80, cpus=192, memory_gib=2048)
    one = catalog.InstanceType(name="p5.4xlarge", gpu="h100", gpus=1, gpu_memory_gib=80, cpus=16, memory_gib=256)
    canada = RegionMarket(region="ca-central-1", others=(eight,))
    virginia = RegionMarket(
        region="us-east-1", sales=(ForSale(type=one, zone="us-east-1a", usd_per_hour=Decimal("6.88")),)
    )
    resources = Resources(accelerators=Accelerators(name="h100"))
    assert [offer.instance_type for offer in plan_offers((canada, virginia), resources)] == ["p5.4xlarge"]
    with pytest.raises(BadRequestError, match="h100:1"):
        plan_offers((canada,), resources)


def test_an_unknown_gpu_is_refused_with_the_nearest(ask: Ask, api: Box) -> None:
    """The refusal comes before any request to AWS."""
    with pytest.raises(BadRequestError, match="did you mean a10g"):
        ask(accelerators=Accelerators(name="a10"))
    assert not api.calls()


def test_a_type_by_name_needs_no_gpu(ask: Ask) -> None:
    """Any x86_64 type that the region sells; types with other processors are not offered."""
    assert {offer.instance_type for offer in ask(instance_type="t3.micro").offers} == {"t3.micro"}
    with pytest.raises(NoCapacityError, match=r"doesn't sell g5g\.xlarge"):
        ask(instance_type="g5g.xlarge")


def test_a_type_that_contradicts_the_gpu_is_refused(ask: Ask) -> None:
    """The user gave both, and one of them is wrong."""
    with pytest.raises(BadRequestError, match="t4:1") as refused:
        ask(instance_type="g5.xlarge", accelerators=Accelerators(name="t4"))
    assert "g5.xlarge a10g:1" in refused.value.why


def test_without_requirements_a_plain_machine_at_a_fixed_price_is_offered(ask: Ask) -> None:
    """Burstable types can bill more than their price, so they are offered only by name."""
    offers = ask().offers
    assert offers[0].accelerators is None
    assert not any(offer.instance_type.startswith("t") for offer in offers)


def test_several_regions_are_compared_by_price(ask: Ask) -> None:
    """The cheapest of all comes first; the more expensive region follows."""
    offers = ask(accelerators=A10G, regions=("eu-central-1", "us-west-2")).offers
    assert {offer.region for offer in offers} == {"eu-central-1", "us-west-2"}
    assert offers[0].region == "us-west-2"


def test_a_zone_narrows_the_offers_and_selects_the_region(ask: Ask, api: Box) -> None:
    """Only that region is queried."""
    offers = ask(accelerators=A10G, zone="us-west-2b").offers
    assert {offer.zone for offer in offers} == {"us-west-2b"}
    assert {call.region for call in api.calls("ec2")} == {"us-west-2"}


def test_a_zone_that_lacks_the_type_is_refused_with_those_that_have_it(ask: Ask) -> None:
    """The message names the zones to use instead."""
    with pytest.raises(NoCapacityError, match="us-east-1e") as refused:
        ask(accelerators=A10G, zone="us-east-1e")
    assert "us-east-1a" in refused.value.why


def test_a_zone_of_another_region_is_refused(ask: Ask) -> None:
    """No offer can match both the zone and the region."""
    with pytest.raises(BadRequestError, match="eu-west-1a is in none of the regions"):
        ask(accelerators=A10G, zone="eu-west-1a", regions=("us-east-1",))


def test_an_existing_volume_pins_the_zone(ask: Ask) -> None:
    """A volume can be attached only in its own zone."""
    assert {offer.zone for offer in ask("us-east-1c", accelerators=A10G).offers} == {"us-east-1c"}
    with pytest.raises(BadRequestError, match="can't use the data volume"):
        ask("us-east-1c", accelerators=A10G, zone="us-east-1a")


def test_an_offer_states_the_size_of_local_disks(ask: Ask) -> None:
    """g4dn.xlarge has one of 125 GB, which is 116 GiB; m5.large has none."""
    (offer, *_) = ask(instance_type="g4dn.xlarge").offers
    assert offer.local_disk_gib == 116
    assert ask(instance_type="m5.large").offers[0].local_disk_gib == 0


def test_a_root_disk_is_never_smaller_than_the_image(ask: Ask, api: Box) -> None:
    """EC2 would refuse it."""
    offer = ask(accelerators=A10G, disk_gib=1).offers[0]
    image = api.client("ec2").describe_images(Owners=["898082745236"])["Images"][0]
    assert offer.disk_gib == image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]


def test_requests_for_offers_are_filtered(ask: Ask, api: Box) -> None:
    """An unfiltered answer takes seconds."""
    ask(accelerators=A10G)
    ask(accelerators=A10G, use_spot=True)
    (types,) = api.calls("ec2", "DescribeInstanceTypes")
    assert types.params["Filter.1.Value.1"] == "g5.*"
    for call in api.calls("pricing"):
        assert {"regionCode"} < {one["Field"] for one in call.params["Filters"]}
    for call in api.calls("ec2", "DescribeSpotPriceHistory"):
        assert {call.params["InstanceType.1"], call.params["ProductDescription.1"]} >= {"Linux/UNIX"}


def test_a_zone_id_names_the_same_zone_in_every_account(ask: Ask, api: Box) -> None:
    """It selects the region and narrows the offers. The launch sends the id, not a zone name.

    fact: aws-zone-id-member
    """
    zones = api.client("ec2", "us-west-2").describe_availability_zones()["AvailabilityZones"]
    (zone_id,) = (zone["ZoneId"] for zone in zones if zone["ZoneName"] == "us-west-2b")
    by_id = ask(accelerators=A10G, zone=zone_id).offers
    by_name = ask(accelerators=A10G, zone="us-west-2b").offers
    assert {(offer.region, offer.zone) for offer in by_id} == {("us-west-2", zone_id)}
    assert [offer.instance_type for offer in by_id] == [offer.instance_type for offer in by_name]
    with pytest.raises(BadRequestError, match="us-west-2 has no zone usw2-az9"):
        ask(accelerators=A10G, zone="usw2-az9")
    with pytest.raises(BadRequestError, match="can't use the data volume"):
        ask("us-west-2a", accelerators=A10G, zone=zone_id)


def test_gpus_of_one_name_and_two_sizes_are_told_apart() -> None:
    """EC2 calls both A100; SkyPilot's files call the larger one A100-80GB."""
    gpu = {"Name": "A100", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}
    info = {
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1179648},
        "GpuInfo": {"Gpus": [gpu]},
    }
    for name, gpus in (("p4de.24xlarge", "a100-80gb:8"), ("p4d.24xlarge", "a100:8")):
        answer: Any = {"InstanceType": name, **info}
        assert str(catalog.parse_type(answer).accelerators) == gpus
