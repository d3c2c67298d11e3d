"""What AWS sells, asked over HTTP from the cloud in a box; and from the snapshot where nobody answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers.aws import catalog, prices, quotas
from orchestrator.adapters.providers.aws.market import ForSale, RegionMarket
from orchestrator.adapters.providers.aws.offers import Listing, list_offers
from orchestrator.adapters.providers.aws.planning import plan_offers
from orchestrator.adapters.providers.aws.refresh import refresh_snapshot
from orchestrator.adapters.providers.aws.session import AwsSession
from orchestrator.adapters.providers.aws.snapshot import read_snapshot, snapshot_path
from orchestrator.adapters.providers.aws.volumes import place_volumes
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.offer import Accelerators
from tests.cloudbox.box import Box

A10G = Accelerators(name="a10g")
NOBODY = "http://127.0.0.1:1"
ON_DEMAND_G = "L-DB2E81BA"
SPOT_G = "L-3819A6DF"


class SetClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def now(self) -> datetime:
        """Return the instant that was set."""
        return self.at

    def sleep(self, duration: timedelta) -> None:
        """Let time pass."""
        self.at += duration


Ask = Callable[..., Listing]


@pytest.fixture
def clock() -> SetClock:
    """The time of a test."""
    return SetClock()


@pytest.fixture(scope="module")
def session(api_process: Box) -> Iterator[AwsSession]:
    """A user of the box's account; making clients is what takes long."""
    with pytest.MonkeyPatch.context() as shell:
        for name, value in api_process.env.items():
            shell.setenv(name, value)
        yield AwsSession()


@pytest.fixture
def ask(api: Box, session: AwsSession, clock: SetClock, tmp_path: Path) -> Ask:
    """List offers for some wishes."""

    def list_for(volume_zone: str | None = None, user: AwsSession = session, **wishes: Any) -> Listing:
        return list_offers(Resources(**wishes), user, clock, tmp_path / "aws", volume_zone=volume_zone)

    return list_for


def test_a_gpu_is_sold_as_every_type_that_has_it_in_every_zone(ask: Ask) -> None:
    """One offer for each, cheapest first, so that a launch that is refused has somewhere to go."""
    offers = ask(accelerators=A10G).offers
    assert {offer.instance_type for offer in offers} == {f"g5.{size}xlarge" for size in ("", "2", "4", "8", "16")}
    assert len({(offer.zone, offer.instance_type) for offer in offers}) == len(offers)
    assert [offer.total_usd_per_hour for offer in offers] == sorted(offer.total_usd_per_hour for offer in offers)
    first = offers[0]
    assert (first.provider, first.region, first.zone) == ("aws", "us-east-1", "us-east-1a")
    assert (first.instance_type, first.usd_per_hour, first.spot) == ("g5.xlarge", Decimal("1.006"), False)
    assert (str(first.accelerators), first.gpu_memory_gib, first.cpus, first.memory_gib) == ("a10g:1", 22.4, 4, 16)


def test_the_count_of_gpus_chooses_the_type(ask: Ask) -> None:
    """Four A10G are two sizes; a count that no machine has is refused with those there are."""
    four = ask(accelerators=Accelerators(name="a10g", count=4)).offers
    assert {offer.instance_type for offer in four} == {"g5.12xlarge", "g5.24xlarge"}
    with pytest.raises(BadRequestError, match="a10g:3") as refused:
        ask(accelerators=Accelerators(name="a10g", count=3))
    assert "g5.48xlarge a10g:8" in refused.value.why


def test_a_region_without_the_count_doesnt_hide_one_that_has_it() -> None:
    """One H100 is sold in fewer regions than eight are."""
    eight = catalog.InstanceType(name="p5.48xlarge", gpu="h100", gpus=8, gpu_memory_gib=80, cpus=192, memory_gib=2048)
    one = catalog.InstanceType(name="p5.4xlarge", gpu="h100", gpus=1, gpu_memory_gib=80, cpus=16, memory_gib=256)
    canada = RegionMarket(region="ca-central-1", others=(eight,))
    virginia = RegionMarket(
        region="us-east-1", sales=(ForSale(type=one, zone="us-east-1a", usd_per_hour=Decimal("6.88")),)
    )
    wish = Resources(accelerators=Accelerators(name="h100"))
    assert [offer.instance_type for offer in plan_offers((canada, virginia), wish)] == ["p5.4xlarge"]
    with pytest.raises(BadRequestError, match="h100:1"):
        plan_offers((canada,), wish)


def test_an_unknown_gpu_is_refused_with_the_nearest(ask: Ask, api: Box) -> None:
    """Before AWS is asked anything."""
    with pytest.raises(BadRequestError, match="did you mean a10g"):
        ask(accelerators=Accelerators(name="a10"))
    assert not api.calls()


def test_a_type_by_name_needs_no_gpu(ask: Ask) -> None:
    """Any x86_64 type that the region sells; other processors are no offer."""
    assert {offer.instance_type for offer in ask(instance_type="t3.micro").offers} == {"t3.micro"}
    with pytest.raises(NoCapacityError, match=r"doesn't sell g5g\.xlarge"):
        ask(instance_type="g5g.xlarge")


def test_a_type_that_contradicts_the_gpu_is_refused(ask: Ask) -> None:
    """Both were said; one is wrong."""
    with pytest.raises(BadRequestError, match="t4:1") as refused:
        ask(instance_type="g5.xlarge", accelerators=Accelerators(name="t4"))
    assert "g5.xlarge a10g:1" in refused.value.why


def test_without_wishes_it_is_a_plain_machine_that_costs_what_it_says(ask: Ask) -> None:
    """Burstable types bill more than their price; they are taken only by name."""
    offers = ask().offers
    assert offers[0].accelerators is None
    assert not any(offer.instance_type.startswith("t") for offer in offers)


def test_spot_prices_are_those_of_each_zone_now(ask: Ask, api: Box) -> None:
    """A zone that has become cheap comes first at once: spot prices are never kept."""
    before = ask(accelerators=A10G, use_spot=True).offers
    assert all(offer.spot and offer.usd_per_hour < Decimal("1.006") * 5 for offer in before)
    dearest = [offer for offer in before if offer.instance_type == "g5.xlarge"][-1]
    api.set_spot_price("g5.xlarge", dearest.zone, "0.1")
    after = ask(accelerators=A10G, use_spot=True).offers
    assert (after[0].zone, after[0].instance_type, after[0].usd_per_hour) == (dearest.zone, "g5.xlarge", Decimal("0.1"))


@pytest.mark.parametrize(("most", "cap"), [(None, "1.006"), ("0.8", "0.8"), ("2", "1.006")])
def test_a_spot_price_may_rise_to_that_on_demand_or_to_the_user_s_limit(
    ask: Ask, api: Box, most: str | None, cap: str
) -> None:
    """The worst case of a plan counts with it, disks and address included."""
    api.set_spot_price("g5.xlarge", "us-east-1a", "0.1")
    wish = {"max_usd_per_hour": Decimal(most)} if most else {}
    (offer, *_) = ask(instance_type="g5.xlarge", use_spot=True, **wish).offers
    assert (offer.usd_per_hour, offer.cap_usd_per_hour) == (Decimal("0.1"), Decimal(cap))
    assert offer.worst_usd_per_hour == Decimal(cap) + offer.disk_usd_per_hour


def test_a_price_on_demand_does_not_move(ask: Ask) -> None:
    """The worst case is what it costs now."""
    offer = ask(instance_type="g5.xlarge").offers[0]
    assert offer.worst_usd_per_hour == offer.total_usd_per_hour


def test_several_regions_are_compared_by_price(ask: Ask) -> None:
    """The cheapest of all comes first, and the dearer region follows."""
    offers = ask(accelerators=A10G, regions=("eu-central-1", "us-west-2")).offers
    assert {offer.region for offer in offers} == {"eu-central-1", "us-west-2"}
    assert offers[0].region == "us-west-2"


def test_a_zone_narrows_the_offers_and_says_the_region(ask: Ask, api: Box) -> None:
    """Only that region is asked."""
    offers = ask(accelerators=A10G, zone="us-west-2b").offers
    assert {offer.zone for offer in offers} == {"us-west-2b"}
    assert {call.region for call in api.calls("ec2")} == {"us-west-2"}


def test_a_zone_that_lacks_the_type_is_refused_with_those_that_have_it(ask: Ask) -> None:
    """The message is where to go instead."""
    with pytest.raises(NoCapacityError, match="us-east-1e") as refused:
        ask(accelerators=A10G, zone="us-east-1e")
    assert "us-east-1a" in refused.value.why


def test_a_zone_of_another_region_is_refused(ask: Ask) -> None:
    """Nothing could fit both."""
    with pytest.raises(BadRequestError, match="eu-west-1a is in none of the regions"):
        ask(accelerators=A10G, zone="eu-west-1a", regions=("us-east-1",))


def test_a_volume_that_exists_pins_the_zone(ask: Ask) -> None:
    """Volumes serve machines of their own zone only."""
    assert {offer.zone for offer in ask("us-east-1c", accelerators=A10G).offers} == {"us-east-1c"}
    with pytest.raises(BadRequestError, match="can't use the data volume"):
        ask("us-east-1c", accelerators=A10G, zone="us-east-1a")


def test_nothing_above_the_highest_price_is_offered(ask: Ask) -> None:
    """Where nothing is left, the cheapest is named."""
    offers = ask(accelerators=A10G, max_usd_per_hour=Decimal("1.3")).offers
    assert {offer.instance_type for offer in offers} == {"g5.xlarge", "g5.2xlarge"}
    with pytest.raises(NoCapacityError, match=r"at most \$0\.5") as refused:
        ask(accelerators=A10G, max_usd_per_hour=Decimal("0.5"))
    assert "g5.xlarge in us-east-1a at $1.006" in refused.value.why


def test_disks_and_the_address_are_part_of_the_price(ask: Ask) -> None:
    """Root disk and wished volumes by the price list, $0.08 a GiB-month of 730 hours; the address $0.005 an hour."""
    volume = VolumeSpec(name="imagenet", target="data", size_gib=500, mibps=125)
    first = ask(accelerators=A10G, disk_gib=150, volumes=(volume,)).offers[0]
    assert first.disk_gib == 150
    assert first.disk_usd_per_hour == Decimal("0.076233")
    assert first.total_usd_per_hour == Decimal("1.006") + Decimal("0.076233")


def test_iops_and_throughput_beyond_every_disk_s_are_part_of_the_price_and_the_worst_case(ask: Ask) -> None:
    """$0.005 for each of the IOPS beyond 3,000 and $0.04 for each MiB/s beyond 125, a month; 500 GiB have 500 MiB/s."""
    small = VolumeSpec(name="a", target="data", size_gib=100)
    large = replace(small, size_gib=500)
    fast = replace(small, mibps=1000, iops=6000)

    def disks(*volumes: VolumeSpec, **root: int) -> Decimal:
        offer = ask(accelerators=A10G, disk_gib=150, volumes=volumes, **root).offers[0]
        assert offer.worst_usd_per_hour == offer.usd_per_hour + offer.disk_usd_per_hour
        return (offer.disk_usd_per_hour - Decimal("0.005")) * 730

    assert disks(small) == pytest.approx(Decimal(250) * Decimal("0.08"), abs=Decimal("0.001"))
    assert disks(large) - disks() == pytest.approx(500 * Decimal("0.08") + 375 * Decimal("0.04"), abs=Decimal("0.002"))
    extra = 875 * Decimal("0.04") + 3000 * Decimal("0.005")
    assert disks(fast) - disks(small) == pytest.approx(extra, abs=Decimal("0.002"))
    root = disks(disk_mibps=1000) - disks()
    assert root == pytest.approx(875 * Decimal("0.04") + 1000 * Decimal("0.005"), abs=Decimal("0.002"))


def test_a_machine_s_own_disks_are_told(ask: Ask) -> None:
    """g4dn.xlarge has one of 125 GB, which is 116 GiB; m5.large has none."""
    (offer, *_) = ask(instance_type="g4dn.xlarge").offers
    assert offer.local_disk_gib == 116
    assert ask(instance_type="m5.large").offers[0].local_disk_gib == 0


def test_a_root_disk_is_never_smaller_than_the_image(ask: Ask, api: Box) -> None:
    """EC2 would refuse it."""
    offer = ask(accelerators=A10G, disk_gib=1).offers[0]
    image = api.client("ec2").describe_images(Owners=["898082745236"])["Images"][0]
    assert offer.disk_gib == image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]


def test_types_over_the_quota_are_left_out(ask: Ask, api: Box) -> None:
    """With 8 vCPUs there is room for the two smallest."""
    api.set_quota(ON_DEMAND_G, 8)
    assert {offer.instance_type for offer in ask(accelerators=A10G).offers} == {"g5.xlarge", "g5.2xlarge"}


def test_a_quota_without_room_is_named_with_what_to_ask_for(ask: Ask, api: Box) -> None:
    """What runs counts, of the same family and market only: code, value, need and page are in the message."""
    api.set_quota(SPOT_G, 6)
    spot = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    for options in ({}, {"InstanceMarketOptions": spot}):
        api.client("ec2").run_instances(
            ImageId=_any_image(api), InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, **options
        )
    with pytest.raises(NoCapacityError, match="us-east-1") as refused:
        ask(accelerators=A10G, use_spot=True)
    assert f"{SPOT_G} (All G and VT Spot Instance Requests) is 6 vCPUs, of which 4 run now" in refused.value.why
    assert "needs 4" in refused.value.why
    assert (
        f"ask for 8 or more at https://us-east-1.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{SPOT_G}"
        in (refused.value.fix)
    )
    assert ask(accelerators=A10G).offers


def test_whoever_may_not_read_quotas_still_gets_offers(ask: Ask, api: Box) -> None:
    """The launch itself will say."""
    api.fail_next("GetServiceQuota", "AccessDeniedException", times=None)
    assert ask(accelerators=A10G).offers


def test_what_rarely_changes_is_asked_once_a_day_and_the_plan_shows_its_age(
    ask: Ask, api: Box, clock: SetClock
) -> None:
    """A second look asks for what moves: spot prices, placement scores, machines that run, and the default network."""
    assert ask(accelerators=A10G, use_spot=True).basis == "live"
    first, api_calls = clock.now(), len(api.calls())
    clock.sleep(timedelta(hours=3))
    api.reset_calls()
    again = ask(accelerators=A10G, use_spot=True)
    assert sorted(call.action for call in api.calls()) == [
        "DescribeInstances",
        "DescribeSpotPriceHistory",
        "DescribeVpcs",
        "GetSpotPlacementScores",
    ]
    assert again.basis == f"images, prices, quotas, types, zone ids of {first:%Y-%m-%d %H:%M} UTC, the rest live"
    clock.sleep(timedelta(hours=22))
    api.reset_calls()
    assert ask(accelerators=A10G, use_spot=True).basis == "live"
    assert len(api.calls()) == api_calls


def test_calls_are_filtered(ask: Ask, api: Box) -> None:
    """An unfiltered answer takes seconds."""
    ask(accelerators=A10G)
    ask(accelerators=A10G, use_spot=True)
    (types,) = api.calls("ec2", "DescribeInstanceTypes")
    assert types.params["Filter.1.Value.1"] == "g5.*"
    for call in api.calls("pricing"):
        assert {"regionCode"} < {one["Field"] for one in call.params["Filters"]}
    for call in api.calls("ec2", "DescribeSpotPriceHistory"):
        assert {call.params["InstanceType.1"], call.params["ProductDescription.1"]} >= {"Linux/UNIX"}


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("scp", "UnauthorizedOperation, by a service control policy"),
        ("scp-unsaid", "UnauthorizedOperation"),
        ("not-enabled", "AuthFailure"),
        ("opt-in", "OptInRequired"),
    ],
)
def test_a_region_that_is_closed_to_the_account_is_left_out_and_said(ask: Ask, api: Box, how: str, says: str) -> None:
    """Where there are others; alone it is the error.

    fact: aws-scp-deny; fact: aws-region-not-enabled
    """
    api.close_region("eu-central-1", how)
    listing = ask(accelerators=A10G, regions=("eu-central-1", "us-east-1"))
    assert {offer.region for offer in listing.offers} == {"us-east-1"}
    assert listing.notes == (f"eu-central-1 is closed to this account ({says})",)
    with pytest.raises(KedgeError, match="offers of AWS can't be listed"):
        ask(accelerators=A10G, regions=("eu-central-1",))


def test_who_is_forbidden_a_region_by_the_organization_is_told_so(ask: Ask, api: Box) -> None:
    """An administrator of the account can't allow it."""
    api.close_region("eu-central-1", "scp")
    with pytest.raises(KedgeError) as refused:
        ask(accelerators=A10G, regions=("eu-central-1",))
    assert "another --region" in refused.value.fix


def test_a_region_without_the_image_is_left_out_and_said(ask: Ask, api: Box) -> None:
    """New regions get AWS's images later than its machines; one's own image belongs to one region."""
    api.withdraw_image("deeplearning", region="eu-central-1")
    listing = ask(accelerators=A10G, regions=("eu-central-1", "us-east-1"))
    assert {offer.region for offer in listing.offers} == {"us-east-1"}
    assert listing.notes[0].startswith("eu-central-1 is left out: eu-central-1 has no image at /aws/service")
    mine = _any_image(api)
    own = ask(accelerators=A10G, regions=("us-west-2", "us-east-1"), image_id=mine)
    assert {offer.region for offer in own.offers} == {"us-east-1"}
    assert own.notes == (f"us-west-2 is left out: there is no image {mine} in us-west-2",)


def test_a_data_volume_is_not_looked_for_where_nothing_can_be_rented(ask: Ask, api: Box, session: AwsSession) -> None:
    """A closed region doesn't fail the listing before it has begun."""
    api.close_region("eu-central-1", "scp")
    wish = Resources(
        regions=("eu-central-1", "us-east-1"), volumes=(VolumeSpec(name="imagenet", target="data", size_gib=5),)
    )
    assert place_volumes(wish, session) == (wish, None)


def test_a_zone_by_its_id_is_the_same_in_every_account(ask: Ask, api: Box) -> None:
    """It says the region, narrows the offers, and stays an id, which is what the launch sends.

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


def test_of_nearly_equal_spot_prices_the_likelier_zone_goes_first(ask: Ask, api: Box) -> None:
    """Within a fifth of the cheapest the placement score counts, beyond it the price; the plan says so.

    fact: aws-placement-scores
    """
    for zone, price in {"a": "0.300", "b": "0.310", "c": "0.320", "d": "0.400", "f": "0.500"}.items():
        api.set_spot_price("g5.xlarge", f"us-east-1{zone}", price)
    for zone, score in {"a": 3, "b": 9, "c": 9, "d": 10, "f": 10}.items():
        api.set_placement_score(f"us-east-1{zone}", score)
    listing = ask(accelerators=A10G, use_spot=True, max_usd_per_hour=Decimal("0.5"))
    small = [offer.zone[-1] for offer in listing.offers if offer.instance_type == "g5.xlarge"]
    assert small == ["b", "c", "a", "d", "f"]
    assert listing.notes[0].startswith(
        "spot order: within 20 % of the cheapest by placement score (of 10: us-east-1b 9,"
    )
    (asked,) = api.calls("ec2", "GetSpotPlacementScores")
    assert (asked.params["TargetCapacity"], asked.params["SingleAvailabilityZone"]) == ("1", "true")


def test_placement_scores_are_asked_once_in_half_an_hour(ask: Ask, api: Box, clock: SetClock) -> None:
    """AWS limits how many different questions an account may ask in a day, so a wish is always the same one."""
    first = ask(accelerators=A10G, use_spot=True, regions=("us-west-2", "us-east-1"))
    clock.sleep(timedelta(minutes=25))
    ask(accelerators=A10G, use_spot=True, regions=("us-east-1", "us-west-2"))
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 1
    clock.sleep(timedelta(minutes=10))
    api.set_placement_score("us-east-1a", 1)
    assert ask(accelerators=A10G, use_spot=True, regions=("us-east-1", "us-west-2")).offers != first.offers
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 2


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "MaxConfigLimitExceeded", "InternalError"])
def test_without_placement_scores_the_cheapest_goes_first(ask: Ask, api: Box, code: str) -> None:
    """They are advice: whoever may not ask for them, or has asked too much, is told so and goes on.

    fact: aws-placement-scores
    """
    api.fail_next("GetSpotPlacementScores", code, times=None)
    listing = ask(accelerators=A10G, use_spot=True)
    prices_of = [offer.total_usd_per_hour for offer in listing.offers]
    assert prices_of == sorted(prices_of)
    assert listing.notes == (f"spot order: cheapest first (AWS gave no placement scores: {code})",)
    assert len(api.calls("ec2", "GetSpotPlacementScores")) == 1


def test_whoever_may_not_ask_is_told_what_to_allow(ask: Ask, api: Box) -> None:
    """No snapshot: the account is there, its rights are not."""
    api.fail_next("GetProducts", "AccessDeniedException", times=None)
    with pytest.raises(KedgeError, match="offers of AWS can't be listed") as refused:
        ask(accelerators=A10G)
    assert "GetProducts" in refused.value.fix


def test_without_network_the_snapshot_is_planned_with(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its origin and its day are the basis, and a note says why."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    listing = ask(user=AwsSession(), accelerators=A10G)
    assert listing.offers[0].instance_type == "g5.xlarge"
    assert listing.offers[0].usd_per_hour == Decimal("1.006")
    assert listing.basis == read_snapshot(snapshot_path()).basis
    assert "2026" in listing.basis
    assert "could not be asked" in listing.notes[0]
    assert not any(offer.live for offer in listing.offers)


def test_without_credentials_the_snapshot_is_planned_with(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody without an account can see what a run would cost."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    listing = ask(user=AwsSession(), accelerators=Accelerators(name="h100", count=8), use_spot=True)
    assert listing.offers[0].usd_per_hour == Decimal("17.6289")
    assert "credentials" in listing.notes[0]


def test_a_zone_by_name_costs_the_dearest_of_the_snapshot(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which zone a name means is known to the account alone; a worst case must not be too low."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    (offer,) = ask(user=AwsSession(), accelerators=Accelerators(name="t4"), zone="us-east-1a", use_spot=True).offers
    assert (offer.zone, offer.usd_per_hour) == ("us-east-1a", Decimal("0.2158"))


def test_a_region_that_the_snapshot_lacks_is_refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than with prices of somewhere else."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY)
    with pytest.raises(BadRequestError, match="know nothing of sa-east-1"):
        ask(user=AwsSession(), accelerators=A10G, regions=("sa-east-1",))


def test_the_snapshot_that_travels_along_says_where_its_figures_are_from() -> None:
    """Each has a type that is known, and a price."""
    kept = read_snapshot(snapshot_path())
    assert {"read"} <= set(kept.source)
    names = {kind.name for kind in kept.types}
    assert {price.type for price in kept.prices} == names
    for price in kept.prices:
        assert price.usd_per_hour > 0
        assert price.spot, price
        most = price.usd_per_hour + Decimal("0.0001")  # the catalogue rounds spot prices
        assert all(usd is None or 0 < usd < most for usd in price.spot.values()), price


def test_a_refreshed_snapshot_is_what_aws_sells_now(
    session: AwsSession, api: Box, clock: SetClock, tmp_path: Path
) -> None:
    """It serves offline, with its own day as the basis, and zones by their ids."""
    path = tmp_path / "offers.json"
    api.set_spot_price("g5.xlarge", "us-east-1a", "0.123")
    said = refresh_snapshot(session, clock, path=path, regions=("us-east-1",))
    assert (said["path"], said["regions"]) == (str(path), ["us-east-1"])
    kept = read_snapshot(path)
    assert kept.basis == f"a snapshot of {clock.now():%Y-%m-%d}"
    (price,) = (price for price in kept.prices if price.type == "g5.xlarge")
    assert price.usd_per_hour == Decimal("1.006")
    assert Decimal("0.123") in price.spot.values()
    assert all(zone.startswith("use1-az") for zone in price.spot)
    zones = api.client("ec2").describe_availability_zones()["AvailabilityZones"]
    (zone_id,) = (zone["ZoneId"] for zone in zones if zone["ZoneName"] == "us-east-1a")
    (market,) = kept.markets(Resources(accelerators=A10G, use_spot=True), ("us-east-1",), None)
    assert (zone_id, Decimal("0.123")) in {(sale.zone, sale.usd_per_hour) for sale in market.sales}


def test_a_refresh_that_fails_leaves_the_snapshot_as_it_was(
    session: AwsSession, api: Box, clock: SetClock, tmp_path: Path
) -> None:
    """Half a snapshot would be worse than an old one."""
    path = tmp_path / "offers.json"
    path.write_bytes(snapshot_path().read_bytes())
    api.fail_next("GetProducts", "AccessDeniedException", times=None)
    with pytest.raises(KedgeError, match="can't be taken"):
        refresh_snapshot(session, clock, path=path)
    assert path.read_bytes() == snapshot_path().read_bytes()


def test_a_price_is_read_out_of_the_price_list() -> None:
    """Entries that cost nothing (capacity that somebody else pays for) and other units are passed over."""
    assert prices.parse_price([_entry("0.0000000000"), _entry("1.0060000000")], unit="Hrs") == Decimal("1.006")
    assert prices.parse_price([_entry("12.0000000000")], unit="Hrs") == Decimal(12)
    assert prices.parse_price([_entry("1.0060000000")], unit="GB-Mo") is None
    assert prices.parse_price([], unit="Hrs") is None


def test_the_newest_spot_price_of_a_zone_counts() -> None:
    """AWS answers with the price before the asked instant too, in any order."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    history: list[Any] = [
        {"AvailabilityZone": "us-east-1a", "InstanceType": "g5.xlarge", "SpotPrice": "0.4", "Timestamp": now},
        {
            "AvailabilityZone": "us-east-1a",
            "InstanceType": "g5.xlarge",
            "SpotPrice": "0.9",
            "Timestamp": now - timedelta(hours=5),
        },
    ]
    assert prices.newest_prices(history) == {("us-east-1a", "g5.xlarge"): Decimal("0.4")}


def test_gpus_of_one_name_and_two_sizes_are_told_apart() -> None:
    """EC2 calls both A100; SkyPilot's files say A100-80GB for the larger."""
    gpu = {"Name": "A100", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}
    info = {
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1179648},
        "GpuInfo": {"Gpus": [gpu]},
    }
    for name, gpus in (("p4de.24xlarge", "a100-80gb:8"), ("p4d.24xlarge", "a100:8")):
        answer: Any = {"InstanceType": name, **info}
        assert str(catalog.parse_type(answer).accelerators) == gpus


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("g4dn.xlarge", False, ON_DEMAND_G),
        ("gr6.4xlarge", True, SPOT_G),
        ("vt1.3xlarge", False, ON_DEMAND_G),
        ("p3.8xlarge", False, "L-417A185B"),
        ("p4de.24xlarge", True, "L-7212CCBC"),
        ("p5en.48xlarge", True, "L-C4BD4855"),
        ("p6-b200.48xlarge", False, "L-417A185B"),
        ("m7i.large", False, "L-1216C47A"),
        ("t3.micro", True, "L-34B43A08"),
        ("inf2.xlarge", False, None),
        ("trn1.2xlarge", False, None),
        ("x2idn.16xlarge", False, None),
        ("mac1.metal", False, None),
    ],
)
def test_a_type_counts_against_the_quota_of_its_family(instance_type: str, spot: bool, code: str | None) -> None:
    """By the first letters of its name; families of other chips have quotas of their own."""
    quota = quotas.quota_of(instance_type, spot=spot)
    assert (quota.code if quota else None) == code


def _any_image(api: Box) -> str:
    name = "/aws/service/debian/release/12/latest/amd64"
    return str(api.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])


def _entry(usd: str) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}, "description": "g5.xlarge"}
    return json.dumps({"product": {}, "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}}})
