"""`kedge volumes` on AWS in the box: the data volumes of an account, and their end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.support.laptop import Laptop


@pytest.fixture
def laptop(api: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account whose user has exactly the documented policy."""
    set_up(api)
    laptop.extra_env |= {**api.env, "KEDGE_PROVIDER": "aws"}
    api.enforce_iam()
    yield laptop
    api.enforce_iam(False)


def test_volumes_of_all_regions_are_listed_with_their_price_and_one_is_deleted(api: Box, laptop: Laptop) -> None:
    """By its name or by its id; never without a yes, and in a dry run neither."""
    first = make_volume(api, "imagenet", size_gib=500, mibps=500)
    second = make_volume(api, "scans", region="us-west-2", at_end="delete")
    table = laptop.kedge("volumes")
    assert f"{first}" in table
    assert "$55" in table
    listed = laptop.json("volumes")["volumes"]
    assert [(each["name"], each["id"], each["region"], each["kept"]) for each in listed] == [
        ("imagenet", first, "us-east-1", True),
        ("scans", second, "us-west-2", False),
    ]
    laptop.kedge("volumes", "--delete", "imagenet", code=2)
    laptop.kedge("volumes", "--delete", "imagenet", "--dry-run")
    assert len(api.billing()) == 2
    assert laptop.json("volumes", "--delete", "imagenet", "--yes")["deleted"] == [first]
    assert f"Deleted data volume scans ({second})." in laptop.kedge("volumes", "--delete", second, "--yes")
    assert api.billing() == []
    assert "There are no data volumes" in laptop.kedge("volumes")


def test_a_name_that_is_not_clear_deletes_nothing(api: Box, laptop: Laptop) -> None:
    """Two of one name need the id, and an unknown name is none."""
    here, there = make_volume(api, "scans"), make_volume(api, "scans", region="us-west-2")
    laptop.kedge("volumes", "--delete", "scans", "--yes", code=2)
    assert f"{here} at aws in us-east-1, {there} at aws in us-west-2" in laptop.errors
    laptop.kedge("volumes", "--delete", "imagenet", "--yes", code=2)
    assert "there is no data volume imagenet" in laptop.errors
    assert len(api.billing()) == 2


def test_a_volume_of_the_user_s_own_is_listed_and_not_deleted(api: Box, laptop: Laptop) -> None:
    """A run has used it, but kedge didn't make it."""
    volume = make_volume(api, "mine", made=False)
    assert [each["id"] for each in laptop.json("volumes")["volumes"]] == [volume]
    laptop.kedge("volumes", "--delete", "mine", "--yes", code=2)
    assert "kedge didn't make it" in laptop.errors
    assert [bill.id for bill in api.billing()] == [volume]


def test_regions_that_do_not_answer_are_named(api: Box, laptop: Laptop) -> None:
    """A list with a gap must not look like a whole one."""
    api.fail_next("DescribeVolumes", "InternalError", times=None, region="us-west-2")
    volume = make_volume(api, "scans")
    listed = laptop.json("volumes", code=5)
    assert [each["id"] for each in listed["volumes"]] == [volume]
    assert "us-west-2" in laptop.errors


def make_volume(
    api: Box,
    name: str,
    *,
    region: str = "us-east-1",
    size_gib: int = 8,
    mibps: int = 125,
    at_end: str = "keep",
    made: bool = True,
) -> str:
    """Make a volume as a run leaves it."""
    tags = {"kedge-volume": name, "kedge-run": "digits-1128-ab2c", "kedge-at-end": at_end}
    tags |= {"kedge-created": "2026-11-28T09:00:00+00:00"} if made else {}
    made_volume = api.client("ec2", region).create_volume(
        AvailabilityZone=f"{region}a",
        Size=size_gib,
        Throughput=mibps,
        VolumeType="gp3",
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    return str(made_volume["VolumeId"])
