"""Limits on what an account may rent: quotas, closed regions and missing permissions."""

from __future__ import annotations

import pytest

from orchestrator.adapters.cloud.volumes.find import locate_volumes
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.market import quotas
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes
from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.job import Resources, VolumeSpec
from tests.adapters.aws.market.asking import A10G, ON_DEMAND_G, SPOT_G, Ask, any_image
from tests.cloudbox.aws.box import Box


def test_types_over_the_quota_are_left_out(ask: Ask, api: Box) -> None:
    """8 vCPUs have room for the two smallest types."""
    api.set_quota(ON_DEMAND_G, 8)
    assert {offer.instance_type for offer in ask(accelerators=A10G).offers} == {"g5.xlarge", "g5.2xlarge"}


def test_a_full_quota_is_named_with_the_value_to_request(ask: Ask, api: Box) -> None:
    """Only running machines of the same family and market count. The message has code, value, need and page."""
    api.set_quota(SPOT_G, 6)
    spot = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    for options in ({}, {"InstanceMarketOptions": spot}):
        api.client("ec2").run_instances(
            ImageId=any_image(api), InstanceType="g4dn.xlarge", MinCount=1, MaxCount=1, **options
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


def test_offers_are_listed_without_permission_to_read_quotas(ask: Ask, api: Box) -> None:
    """The launch itself fails if a quota is full."""
    api.fail_next("GetServiceQuota", "AccessDeniedException", times=None)
    assert ask(accelerators=A10G).offers


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("scp", "UnauthorizedOperation, by a service control policy"),
        ("scp-unsaid", "UnauthorizedOperation"),
        ("not-enabled", "AuthFailure"),
        ("opt-in", "OptInRequired"),
    ],
)
def test_a_region_closed_to_the_account_is_left_out_with_a_note(ask: Ask, api: Box, how: str, says: str) -> None:
    """If it is the only region, that is an error.

    fact: aws-scp-deny; fact: aws-region-not-enabled
    """
    api.close_region("eu-central-1", how)
    listing = ask(accelerators=A10G, regions=("eu-central-1", "us-east-1"))
    assert {offer.region for offer in listing.offers} == {"us-east-1"}
    assert listing.notes == (f"eu-central-1 is closed to this account ({says})",)
    with pytest.raises(KedgeError, match="offers of AWS can't be listed"):
        ask(accelerators=A10G, regions=("eu-central-1",))


def test_a_region_denied_by_the_organization_is_reported_as_such(ask: Ask, api: Box) -> None:
    """An administrator of the account cannot allow it."""
    api.close_region("eu-central-1", "scp")
    with pytest.raises(KedgeError) as refused:
        ask(accelerators=A10G, regions=("eu-central-1",))
    assert "another --region" in refused.value.fix


def test_a_region_without_the_image_is_left_out_with_a_note(ask: Ask, api: Box) -> None:
    """New regions get AWS's images later than its machines. A user's own image belongs to one region."""
    api.withdraw_image("deeplearning", region="eu-central-1")
    listing = ask(accelerators=A10G, regions=("eu-central-1", "us-east-1"))
    assert {offer.region for offer in listing.offers} == {"us-east-1"}
    assert listing.notes[0].startswith("eu-central-1 is left out: eu-central-1 has no image at /aws/service")
    mine = any_image(api)
    own = ask(accelerators=A10G, regions=("us-west-2", "us-east-1"), image_id=mine)
    assert {offer.region for offer in own.offers} == {"us-east-1"}
    assert own.notes == (f"us-west-2 is left out: there is no image {mine} in us-west-2",)


def test_looking_for_a_data_volume_skips_a_closed_region(ask: Ask, api: Box, session: AwsSession) -> None:
    """Otherwise a closed region would fail the listing of offers in all regions."""
    api.close_region("eu-central-1", "scp")
    resources = Resources(
        regions=("eu-central-1", "us-east-1"), volumes=(VolumeSpec(name="imagenet", target="data", size_gib=5),)
    )
    assert locate_volumes(AwsVolumes(session), resources) == (resources, None)


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
    """The first letters of its name give the family. Families with other chips have their own quotas."""
    quota = quotas.quota_of(instance_type, spot=spot)
    assert (quota.code if quota else None) == code
