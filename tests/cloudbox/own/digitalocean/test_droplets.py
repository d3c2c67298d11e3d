"""Droplets, seen through DigitalOcean's own client."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.orders import create, create_volume, gpus, order, status_of

_NOTHING = "00000000-0000-4000-8000-000000000000"


def test_a_gpu_droplet_is_hidden_from_the_plain_listing(do_api: DigitalOceanBox) -> None:
    """Only type=gpus shows it, also where the listing is by a tag that it carries."""
    number, client = create(do_api, tags=["kedge:run"]), do_api.client()
    small = create(do_api, size="s-1vcpu-1gb", image="debian-12-x64", tags=["kedge:run"])
    assert [one["id"] for one in client.droplets.list()["droplets"]] == [small]
    assert [one["id"] for one in client.droplets.list(tag_name="kedge:run")["droplets"]] == [small]
    assert gpus(do_api) == [number]
    assert status_of(client.droplets.list, type="gpus", tag_name="kedge:run") == 400


def test_a_droplet_is_new_without_an_address_and_then_active(do_api: DigitalOceanBox) -> None:
    """An accepted creation isn't a running machine: that takes time."""
    do_api.settings.activation_seconds = 30
    number = create(do_api)
    seen = do_api.client().droplets.get(number)["droplet"]
    assert (seen["status"], seen["networks"]["v4"]) == ("new", [])
    do_api.advance(31)
    seen = do_api.client().droplets.get(number)["droplet"]
    private, public = seen["networks"]["v4"]
    assert (seen["status"], public["ip_address"]) == ("active", do_api.droplets()[0].address)
    assert private["ip_address"].startswith("10.")


def test_what_is_not_there_is_answered_with_a_value(do_api: DigitalOceanBox) -> None:
    """DigitalOcean's client makes no exception of 404: the body is all that tells.

    fact: do-404-as-value
    """
    client = do_api.client()
    for answer in (client.droplets.get(1), client.droplets.destroy(1), client.volumes.get(_NOTHING)):
        assert answer == {"id": "not_found", "message": "The resource you were accessing could not be found."}


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": "gpu-mi300x9"},
        {"region": "mars1"},
        {"region": "fra1"},
        {"size": "gpu-mi325x1-256gb"},
        {"image": "windows-95"},
        {"image": 1},
        {"ssh_keys": [1]},
        {"tags": ["no spaces"]},
        {"user_data": "x" * (64 * 1024 + 1)},
        {"volumes": ["none"]},
        {"vpc_uuid": "none"},
        {"name": ""},
        {"size": "s-1vcpu-1gb"},
    ],
    ids=[
        *("unknown size", "unknown region", "size not in region", "size in no region", "unknown image"),
        *("unknown image number", "unknown key", "tag with a space", "user data too long", "unknown volume"),
        *("unknown network", "no name", "disk too small for the image"),
    ],
)
def test_what_cannot_be_had_is_refused_and_nothing_is_made(do_api: DigitalOceanBox, wrong: dict[str, Any]) -> None:
    """The answer is 422, whether the description of the API forbids it or only its behaviour."""
    assert status_of(do_api.client().droplets.create, order(**wrong)) == 422
    assert not do_api.droplets()
    assert not do_api.meter.bills()


def test_ten_droplets_can_be_made_at_once_and_eleven_cannot(do_api: DigitalOceanBox) -> None:
    """All or none: each of the ten is like the others but for its name."""
    client = do_api.client()
    body = {key: value for key, value in order().items() if key != "name"}
    assert status_of(client.droplets.create, {**body, "names": [f"n{i}" for i in range(11)]}) == 422
    made = client.droplets.create({**body, "names": [f"n{i}" for i in range(10)]})
    assert [one["name"] for one in made["droplets"]] == [f"n{i}" for i in range(10)]
    assert len(made["links"]["actions"]) == len(do_api.droplets()) == 10


def test_lack_of_capacity_looks_like_a_size_that_is_not_offered(do_api: DigitalOceanBox) -> None:
    """The size is still listed in the region that has none left; another region has."""
    do_api.sell_out("gpu-h100x1-80gb", "tor1")
    with pytest.raises(HttpResponseError, match="not available in this region"):
        create(do_api)
    listed = {size["slug"]: size["regions"] for size in do_api.client().sizes.list(per_page=200)["sizes"]}
    assert "tor1" in listed["gpu-h100x1-80gb"]
    create(do_api, region="nyc2")
    do_api.restock()
    create(do_api)


@pytest.mark.parametrize("status", [403, 422])
def test_an_account_of_a_low_tier_has_no_gpus(do_api: DigitalOceanBox, status: Any) -> None:
    """Which status says so isn't known: tests can have both. Tier 2 has single GPUs, tier 3 all."""
    do_api.settings.tier, do_api.settings.refused_tier_status = 1, status
    assert status_of(do_api.client().droplets.create, order()) == status
    do_api.settings.tier = 2
    create(do_api)
    eight = order(size="gpu-h100x8-640gb", region="nyc2")
    assert status_of(do_api.client().droplets.create, eight) == status


def test_the_accounts_limit_of_gpus_is_apart_from_that_of_droplets(do_api: DigitalOceanBox) -> None:
    """It counts GPUs, and plain droplets are made all the same.

    fact: do-gpu-limit
    """
    do_api.settings.gpu_limit = 8
    create(do_api)
    with pytest.raises(HttpResponseError, match="will exceed your GPU limit"):
        create(do_api, size="gpu-h100x8-640gb", region="nyc2")
    create(do_api, size="s-2vcpu-4gb", image="ubuntu-24-04-x64")


def test_a_creation_that_was_accepted_may_fail(do_api: DigitalOceanBox) -> None:
    """Its action ends `errored`, and the droplet stays `new` and bills until it is deleted, or vanishes.

    fact: do-creation-errored
    """
    client = do_api.client()
    do_api.faults.give_up_next(20)
    do_api.faults.give_up_next(20, vanishes=True)
    answers = [client.droplets.create(order()) for _ in range(2)]
    numbers = [answer["droplet"]["id"] for answer in answers]
    actions = [answer["links"]["actions"][0]["id"] for answer in answers]
    assert [client.actions.get(each)["action"]["status"] for each in actions] == ["in-progress"] * 2
    do_api.advance(21)
    assert [client.actions.get(each)["action"]["status"] for each in actions] == ["errored"] * 2
    assert [droplet.id for droplet in do_api.droplets()] == numbers[:1]
    assert client.droplets.get(numbers[0])["droplet"]["status"] == "new"
    client.droplets.destroy(numbers[0])
    assert do_api.droplets() == []


def test_a_deletion_has_no_effect_on_a_droplet_that_is_new(do_api: DigitalOceanBox) -> None:
    """It is answered with 204 all the same, and the droplet becomes active.

    fact: do-delete-new-without-effect
    """
    do_api.settings.activation_seconds = 30
    number = create(do_api)
    do_api.client().droplets.destroy(number)
    do_api.advance(31)
    assert do_api.client().droplets.get(number)["droplet"]["status"] == "active"
    do_api.settings.deletion_seconds = 5
    do_api.client().droplets.destroy(number)
    assert status_of(do_api.client().droplets.destroy, number) == 422
    do_api.advance(6)
    assert do_api.droplets() == []


def test_the_accounts_limit_of_droplets_holds(do_api: DigitalOceanBox) -> None:
    """One more than the account says is refused, until one is gone."""
    do_api.settings.droplet_limit = 1
    assert do_api.client().account.get()["account"]["droplet_limit"] == 1
    number = create(do_api)
    assert status_of(do_api.client().droplets.create, order()) == 422
    do_api.client().droplets.destroy(number)
    create(do_api)


def test_a_wrong_token_is_refused(do_api: DigitalOceanBox) -> None:
    """With 401, whatever is asked."""
    with pytest.raises(ClientAuthenticationError):
        do_api.client("dop_v1_wrong").account.get()


def test_a_token_with_scopes_does_nothing_else(do_api: DigitalOceanBox) -> None:
    """One that may delete droplets, and see them, can neither make them nor take their volumes along."""
    number = create(do_api)
    machine = do_api.client(do_api.make_token(*SCOPES))
    assert status_of(machine.droplets.create, order()) == 403
    assert status_of(machine.volumes.list) == 403
    dangerous = machine.droplets.destroy_with_associated_resources_dangerous
    assert status_of(dangerous, number, x_dangerous=True) == 403
    machine.droplets.destroy(number)
    assert not do_api.droplets()


def test_a_deletion_takes_its_time_and_leaves_the_volume(do_api: DigitalOceanBox) -> None:
    """Until then the droplet is shown and bills; then its volume is free."""
    do_api.settings.deletion_seconds = 20
    volume = create_volume(do_api)
    number = create(do_api, volumes=[volume])
    do_api.client().droplets.destroy(number)
    assert gpus(do_api) == [number]
    assert status_of(do_api.client().volumes.delete, volume) == 409
    do_api.advance(21)
    assert gpus(do_api) == []
    assert do_api.client().volumes.get(volume)["volume"]["droplet_ids"] == []
    do_api.client().volumes.delete(volume)
    assert not do_api.meter.billing()


def test_droplets_are_destroyed_by_tag(do_api: DigitalOceanBox) -> None:
    """Those that carry it, GPU droplets among them, and no others."""
    create(do_api, tags=["old"])
    kept = create(do_api, tags=["new"])
    do_api.client().droplets.destroy_by_tag(tag_name="old")
    assert gpus(do_api) == [kept]


def test_the_dangerous_destruction_takes_everything_along(do_api: DigitalOceanBox) -> None:
    """Volumes with their snapshots, snapshots of the droplet and reserved addresses: nothing bills afterwards."""
    client, volume = do_api.client(), create_volume(do_api)
    number = create(do_api, volumes=[volume])
    client.volume_snapshots.create(volume, {"name": "kept"})
    client.droplet_actions.post(number, {"type": "snapshot", "name": "image"})
    client.reserved_ips.create({"droplet_id": number})
    listed = client.droplets.list_associated_resources(number)
    assert {kind: len(found) for kind, found in listed.items() if found} == {
        "reserved_ips": 1,
        "snapshots": 1,
        "volumes": 1,
        "volume_snapshots": 1,
    }
    client.droplets.destroy_with_associated_resources_dangerous(number, x_dangerous=True)
    assert client.droplets.get_destroy_associated_resources_status(number)["failures"] == 0
    assert not do_api.meter.billing()


def test_only_the_named_resources_go_with_a_droplet(do_api: DigitalOceanBox) -> None:
    """The selective destruction leaves what isn't named."""
    kept, gone = create_volume(do_api, "kept"), create_volume(do_api, "gone")
    number = create(do_api, volumes=[kept, gone])
    do_api.client().droplets.destroy_with_associated_resources_selective(number, {"volumes": [gone]})
    assert not do_api.droplets()
    assert [volume["id"] for volume in do_api.client().volumes.list()["volumes"]] == [kept]


def test_listings_come_in_pages_with_links(do_api: DigitalOceanBox) -> None:
    """Following `next` shows everything once, and the last page has none."""
    wanted = {create(do_api) for _ in range(5)}
    seen: list[int] = []
    for number in (1, 2, 3):
        answer = do_api.client().droplets.list(type="gpus", per_page=2, page=number)
        seen += [droplet["id"] for droplet in answer["droplets"]]
        assert answer["meta"]["total"] == 5
        assert ("next" in answer["links"]["pages"]) == (number < 3)
        if number < 3:
            assert f"page={number + 1}" in answer["links"]["pages"]["next"]
            assert "type=gpus" in answer["links"]["pages"]["next"]
    assert len(seen) == 5
    assert set(seen) == wanted


def test_a_power_off_is_an_action_that_completes(do_api: DigitalOceanBox) -> None:
    """It is in progress first; the droplet is off, and still there."""
    do_api.settings.action_seconds = 5
    number, client = create(do_api), do_api.client()
    action = client.droplet_actions.post(number, {"type": "power_off"})["action"]
    assert (action["status"], action["completed_at"]) == ("in-progress", None)
    do_api.advance(6)
    assert client.actions.get(action["id"])["action"]["status"] == "completed"
    assert client.droplet_actions.list(number)["actions"][0]["id"] == action["id"]
    assert client.droplets.get(number)["droplet"]["status"] == "off"


def test_a_snapshot_of_a_droplet_is_an_image_for_the_next(do_api: DigitalOceanBox) -> None:
    """It is private, lies in the droplet's region only, and is one of all snapshots."""
    number, client = create(do_api), do_api.client()
    client.droplet_actions.post(number, {"type": "snapshot", "name": "mine"})
    (image,) = client.images.list(private=True)["images"]
    assert (image["name"], image["public"], image["regions"]) == ("mine", False, ["tor1"])
    assert client.snapshots.list(resource_type="droplet")["snapshots"][0]["id"] == str(image["id"])
    create(do_api, image=image["id"])
    assert status_of(client.droplets.create, order(image=image["id"], region="nyc2")) == 422
    client.snapshots.delete(image["id"])
    assert client.images.get(image["id"])["id"] == "not_found"
