"""Launches: their rules, and what Lambda doesn't promise about them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.orders import KIND, REGION, add_key, code_of, launch, listed, order, try_launch
from tests.cloudbox.lambdacloud.rates import LAUNCH

INVALID = (400, "global/invalid-parameters")
UNKNOWN = (404, "global/object-does-not-exist")


def test_a_launch_answers_an_id_and_nothing_else(lambda_api: LambdaBox) -> None:
    """Everything else has to be read, and there is no time of any kind in it. fact: lambda-launch-answers-an-id."""
    reply = try_launch(lambda_api, name="kedge-1", tags=[{"key": "kedge-run", "value": "r"}])
    (made,) = reply.json["data"]["instance_ids"]
    assert reply.json == {"data": {"instance_ids": [made]}}
    assert len(bytes.fromhex(made)) == 16
    shown = listed(lambda_api)[made]
    assert (shown["name"], shown["tags"]) == ("kedge-1", [{"key": "kedge-run", "value": "r"}])
    assert not {key for key in shown if "time" in key or "_at" in key or "creat" in key}


def test_the_same_launch_twice_makes_two_instances(lambda_api: LambdaBox) -> None:
    """There is no idempotency key: names and tags may be equal. fact: lambda-no-idempotency."""
    same: dict[str, Any] = {"name": "kedge-1", "tags": [{"key": "kedge-machine", "value": "m"}]}
    launch(lambda_api, **same)
    launch(lambda_api, **same)
    assert len(lambda_api.instances()) == len(listed(lambda_api)) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"tags": [{"key": "Kedge", "value": ""}]},
        {"tags": [{"key": "kedge_run", "value": ""}]},
        {"tags": [{"key": "k", "value": ""}]},
        {"tags": [{"key": "k" * 56, "value": ""}]},
        {"tags": [{"key": "kedge-run", "value": "v" * 129}]},
        {"tags": [{"key": "kedge-run", "value": "1"}, {"key": "kedge-run", "value": "2"}]},
        {"ssh_key_names": ["laptop", "other"]},
        {"ssh_key_names": []},
        {"quantity": 2},
        {"spot": True},
        {"name": "n" * 65},
        {"hostname": "Upper"},
        {"user_data": "x" * 1_000_001},
        {"file_system_mounts": [{"mount_point": "/lambda/nfs/my_data", "file_system_id": "1"}]},
        {"image": {}},
        {"region_name": 1},
    ],
    ids=str,
)
def test_a_launch_that_breaks_a_rule_is_refused_whole(lambda_api: LambdaBox, wrong: dict[str, Any]) -> None:
    """A bad tag too: nothing is made.

    fact: lambda-tag-pattern; fact: lambda-user-data-limit; fact: lambda-no-quantity
    """
    add_key(lambda_api)
    assert code_of(lambda_api.client().call(*LAUNCH, order(**wrong))) == INVALID
    assert not lambda_api.instances()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssh_key_names": ["other"]},
        {"instance_type_name": "gpu_1x_none"},
        {"image": {"family": "none"}},
        {"file_system_names": ["none"]},
        {"firewall_rulesets": [{"id": "none"}]},
    ],
    ids=str,
)
def test_a_launch_that_names_what_is_not_there_is_refused(lambda_api: LambdaBox, wrong: dict[str, Any]) -> None:
    """With the code that an unknown instance has elsewhere."""
    add_key(lambda_api)
    assert code_of(lambda_api.client().call(*LAUNCH, order(**wrong))) == UNKNOWN


def test_the_longest_that_is_allowed_is_allowed(lambda_api: LambdaBox) -> None:
    """A tag of 55 and 128 characters, and a million bytes of user-data."""
    tags = [{"key": "k" * 55, "value": "V" * 128}]
    launch(lambda_api, tags=tags, name="n" * 64, user_data="x" * 1_000_000)


def test_listed_capacity_may_be_refused(lambda_api: LambdaBox) -> None:
    """With status 400; elsewhere, and where a type isn't listed at all, likewise. fact: lambda-capacity-is-advisory."""
    refused = (400, "instance-operations/launch/insufficient-capacity")
    lambda_api.sell_out(KIND)
    types = lambda_api.client().call("GET", "/api/v1/instance-types").json["data"]
    assert REGION in [each["name"] for each in types[KIND]["regions_with_capacity_available"]]
    assert code_of(try_launch(lambda_api)) == refused
    lambda_api.restock()
    launch(lambda_api)
    assert code_of(try_launch(lambda_api, instance_type_name="gpu_8x_b200_sxm6")) == refused
    assert code_of(try_launch(lambda_api, region_name="asia-northeast-1")) == refused


def test_the_quota_is_an_own_refusal(lambda_api: LambdaBox) -> None:
    """Also with status 400. Other people's instances aren't counted against it in the box."""
    lambda_api.settings.instance_limit = 1
    launch(lambda_api)
    assert code_of(try_launch(lambda_api)) == (400, "global/quota-exceeded")


def test_an_account_may_be_refused(lambda_api: LambdaBox) -> None:
    """Status 403, as what Cloudflare answers, but in Lambda's envelope."""
    add_key(lambda_api)
    lambda_api.settings.refuses_account = "global/invalid-address"
    assert code_of(try_launch(lambda_api)) == (403, "global/invalid-address")


def test_types_are_a_map_with_what_nobody_asked_for(lambda_api: LambdaBox) -> None:
    """Types without capacity, without a GPU, of another architecture, and a field that no description has.

    fact: lambda-types-are-a-map; fact: lambda-unknown-fields; fact: lambda-prices
    """
    types = lambda_api.client().call("GET", "/api/v1/instance-types").json["data"]
    assert types["gpu_8x_b200_sxm6"]["regions_with_capacity_available"] == []
    assert types["cpu_4x_general"]["instance_type"]["specs"]["gpus"] == 0
    assert types["gpu_1x_gh200"]["instance_type"]["architecture"] == "arm64"
    assert types[KIND]["instance_type"]["price_cents_per_hour"] == 429


def test_the_default_image_differs_between_regions(lambda_api: LambdaBox) -> None:
    """So a launch should name a family; one of the type's architecture is taken. fact: lambda-default-images-differ."""
    old = launch(lambda_api)
    new = launch(lambda_api, region_name="us-south-1")
    pinned = launch(lambda_api, image={"family": "lambda-stack-24-04"})
    arm = launch(lambda_api, instance_type_name="gpu_1x_gh200", image={"family": "lambda-stack-24-04"})
    images = {one.id: one.image for one in lambda_api.instances()}
    assert [images[each].family[-5:] for each in (old, new, pinned)] == ["22-04", "24-04", "24-04"]
    assert images[arm].architecture == "arm64"
    shown = lambda_api.client().call("GET", "/api/v1/images").json["data"]
    assert images[pinned].id in [image["id"] for image in shown]


def test_a_key_is_accepted_some_seconds_after_its_entry(lambda_api: LambdaBox) -> None:
    """Nobody says so, and nobody promises that it isn't so."""
    lambda_api.settings.key_seconds = 5
    lambda_api.client().call("POST", "/api/v1/ssh-keys", {"name": "laptop", "public_key": "ssh-ed25519 AAAA"})
    assert code_of(lambda_api.client().call(*LAUNCH, order())) == UNKNOWN
    lambda_api.advance(5)
    assert lambda_api.client().call(*LAUNCH, order()).status == 200
