"""Volumes, firewalls, keys, projects, addresses and networks, seen through DigitalOcean's own client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cloudbox.digitalocean.account.account import Settings
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.orders import create, create_volume, make_key, order, status_of

_SSH: dict[str, Any] = {"protocol": "tcp", "ports": "22", "sources": {"addresses": ["203.0.113.7/32"]}}
_OUT: dict[str, Any] = {"protocol": "tcp", "ports": "all", "destinations": {"addresses": ["0.0.0.0/0"]}}


def test_sizes_say_what_is_for_sale_and_where(do_api: DigitalOceanBox) -> None:
    """A GPU size says which GPUs it has; one is listed as available, and offered in no region."""
    do_api.set_price("gpu-h100x1-80gb", "2.59")
    sizes = {size["slug"]: size for size in do_api.client().sizes.list(per_page=200)["sizes"]}
    offered = sizes["gpu-h100x1-80gb"]
    assert offered["gpu_info"] == {"count": 1, "model": "nvidia_h100", "vram": {"amount": 80, "unit": "gib"}}
    assert (offered["price_hourly"], offered["available"], offered["regions"]) == (2.59, True, ["nyc2", "tor1", "ams3"])
    for slug in ("gpu-mi325x1-256gb", "gpu-mi300x1-192gb"):
        assert (sizes[slug]["available"], sizes[slug]["regions"]) == (True, [])
    assert "gpu_info" not in sizes["s-1vcpu-1gb"]
    do_api.change_size("gpu-h100x1-80gb", regions=())
    assert status_of(do_api.client().droplets.create, order()) == 422


def test_mi300x_is_sold_by_the_amd_developer_cloud(amd_api: DigitalOceanBox) -> None:
    """Under a slug of its own, in one region, where volumes are refused.

    fact: amd-devcloud-sizes
    """
    client = amd_api.client()
    sizes = {size["slug"]: (size["regions"], size["price_hourly"]) for size in client.sizes.list()["sizes"]}
    assert sizes["gpu-mi300x1-192gb-devcloud"] == (["atl1"], 1.99)
    assert [region["slug"] for region in client.regions.list()["regions"]] == ["atl1"]
    wanted = {"name": "a", "region": "atl1", "size": "gpu-mi300x1-192gb-devcloud", "image": "rocm-7-2-4"}
    client.droplets.create(wanted)
    assert status_of(client.volumes.create, {"name": "data", "region": "atl1", "size_gigabytes": 1}) == 422


def test_volumes_are_only_where_the_region_has_storage(do_api: DigitalOceanBox) -> None:
    """Its features say so."""
    do_api.close_storage("nyc2")
    features = {region["slug"]: region["features"] for region in do_api.client().regions.list()["regions"]}
    assert ("storage" in features["nyc2"], "storage" in features["tor1"]) == (False, True)
    body = {"name": "data", "region": "nyc2", "size_gigabytes": 1}
    assert status_of(do_api.client().volumes.create, body) == 422
    create_volume(do_api)


def test_a_key_is_listed_at_once_and_accepted_later(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """After ten seconds, unless a test says otherwise.

    fact: do-key-accepted-late
    """
    do_api.settings.key_seconds = Settings().key_seconds
    key = do_api.client().ssh_keys.create({"name": "mine", "public_key": make_key(tmp_path)})["ssh_key"]
    assert [each["id"] for each in do_api.client().ssh_keys.list()["ssh_keys"]] == [key["id"]]
    assert status_of(do_api.client().droplets.create, order(ssh_keys=[key["id"]])) == 422
    do_api.advance(8)
    assert status_of(do_api.client().droplets.create, order(ssh_keys=[key["id"]])) == 422
    do_api.advance(2)
    create(do_api, ssh_keys=[key["id"]])


def test_a_firewalls_change_is_pending_for_the_droplets_that_it_concerns(do_api: DigitalOceanBox) -> None:
    """Each is named until it has the change."""
    number, client = create(do_api, tags=["web"]), do_api.client()
    made = client.firewalls.create({"name": "web", "inbound_rules": [_SSH], "tags": ["web"]})["firewall"]
    assert made["status"] == "waiting"
    assert [change["droplet_id"] for change in made["pending_changes"]] == [number]
    do_api.advance(3)
    seen = client.firewalls.get(made["id"])["firewall"]
    assert (seen["status"], seen["pending_changes"]) == ("succeeded", [])


def test_images_are_found_by_kind_and_by_slug(do_api: DigitalOceanBox) -> None:
    """Distributions and applications are two listings; the account has none of its own."""
    images = do_api.client().images
    slugs = {image["slug"] for image in images.list(type="application")["images"]}
    assert {"gpu-amd-base", "gpu-h100x1-base"} <= slugs
    assert "debian-12-x64" not in slugs
    assert images.get("gpu-amd-base")["image"]["slug"] == "gpu-amd-base"
    assert images.list(private=True)["images"] == []


def test_a_volume_belongs_to_one_droplet_of_its_region(do_api: DigitalOceanBox) -> None:
    """Elsewhere it is refused, and so are a second droplet and its deletion while one has it."""
    client, volume = do_api.client(), create_volume(do_api)
    near, other, far = create(do_api), create(do_api), create(do_api, region="nyc2")
    act = client.volume_actions.post_by_id
    assert status_of(act, volume, {"type": "attach", "droplet_id": far}) == 422
    assert act(volume, {"type": "attach", "droplet_id": near})["action"]["status"] == "completed"
    assert status_of(act, volume, {"type": "attach", "droplet_id": other}) == 422
    assert status_of(client.droplets.create, order(volumes=[volume])) == 422
    assert client.droplets.get(near)["droplet"]["volume_ids"] == [volume]
    assert status_of(client.volumes.delete, volume) == 409
    act(volume, {"type": "detach", "droplet_id": near})
    client.volumes.delete(volume)
    assert client.volumes.list()["volumes"] == []


def test_a_volume_of_another_region_stops_a_creation(do_api: DigitalOceanBox) -> None:
    """No droplet is made that would lack its volume."""
    volume = create_volume(do_api, region="nyc2")
    assert status_of(do_api.client().droplets.create, order(volumes=[volume])) == 422
    assert not do_api.droplets()


def test_a_region_has_one_volume_of_a_name(do_api: DigitalOceanBox) -> None:
    """So that a name and a region find it, and delete it."""
    create_volume(do_api)
    create_volume(do_api, region="nyc2")
    volumes = do_api.client().volumes
    assert status_of(volumes.create, {"name": "data", "region": "tor1", "size_gigabytes": 1}) == 409
    assert len(volumes.list(name="data", region="tor1")["volumes"]) == 1
    volumes.delete_by_name(name="data", region="tor1")
    assert [one["region"]["slug"] for one in volumes.list()["volumes"]] == ["nyc2"]


def test_a_volume_is_made_from_a_snapshot_that_outlives_the_first(do_api: DigitalOceanBox) -> None:
    """In the same region, and not smaller."""
    client, volume = do_api.client(), create_volume(do_api, size_gigabytes=5)
    snapshot = client.volume_snapshots.create(volume, {"name": "at-end", "tags": ["kedge:run"]})["snapshot"]
    client.volumes.delete(volume)
    assert client.volume_snapshots.get_by_id(snapshot["id"])["snapshot"]["tags"] == ["kedge:run"]
    body = {"name": "again", "region": "tor1", "snapshot_id": snapshot["id"]}
    assert status_of(client.volumes.create, {**body, "size_gigabytes": 4}) == 422
    assert status_of(client.volumes.create, {**body, "size_gigabytes": 5, "region": "nyc2"}) == 422
    client.volumes.create({**body, "size_gigabytes": 5})
    client.volume_snapshots.delete_by_id(snapshot["id"])
    assert client.snapshots.list()["snapshots"] == []


def test_a_firewall_reaches_droplets_by_their_tag(do_api: DigitalOceanBox) -> None:
    """The tag must exist before; a droplet that is made later has the rules at once."""
    client = do_api.client()
    body = {"name": "kedge-run", "tags": ["kedge:run"], "inbound_rules": [_SSH], "outbound_rules": [_OUT]}
    assert status_of(client.firewalls.create, body) == 422
    client.tags.create({"name": "kedge:run"})
    firewall = client.firewalls.create(body)["firewall"]
    assert status_of(client.firewalls.create, body) == 409
    with_tag, without = create(do_api, tags=["kedge:run"]), create(do_api)
    assert [one["id"] for one in client.droplets.list_firewalls(with_tag)["firewalls"]] == [firewall["id"]]
    assert client.droplets.list_firewalls(without)["firewalls"] == []
    changed = {**body, "inbound_rules": [{**_SSH, "sources": {"addresses": ["198.51.100.9/32"]}}]}
    updated = client.firewalls.update(firewall["id"], changed)["firewall"]
    assert updated["inbound_rules"] == changed["inbound_rules"]
    client.firewalls.delete(firewall["id"])
    assert client.firewalls.get(firewall["id"])["id"] == "not_found"


def test_a_tag_counts_what_carries_it_and_goes_from_all(do_api: DigitalOceanBox) -> None:
    """Deleting a tag deletes nothing else."""
    client = do_api.client()
    number, volume = create(do_api, tags=["kedge:run"]), create_volume(do_api, tags=["kedge:run"])
    client.tags.create({"name": "late"})
    client.tags.assign_resources("late", {"resources": [{"resource_id": volume, "resource_type": "volume"}]})
    assert client.tags.get("kedge:run")["tag"]["resources"]["count"] == 2
    client.tags.delete("kedge:run")
    assert client.droplets.get(number)["droplet"]["tags"] == []
    assert client.volumes.get(volume)["volume"]["tags"] == ["late"]
    assert client.tags.get("kedge:run")["id"] == "not_found"


def test_a_key_is_there_once_and_found_by_fingerprint(do_api: DigitalOceanBox, tmp_path: Path) -> None:
    """The fingerprint is the one that ssh-keygen prints with MD5; a droplet takes it in place of the id."""
    do_api.settings.key_seconds = 0
    keys, public = do_api.client().ssh_keys, make_key(tmp_path)
    key = keys.create({"name": "laptop", "public_key": public})["ssh_key"]
    assert status_of(keys.create, {"name": "again", "public_key": public}) == 422
    assert status_of(keys.create, {"name": "broken", "public_key": "ssh-rsa"}) == 422
    assert keys.get(key["fingerprint"])["ssh_key"]["id"] == key["id"]
    create(do_api, ssh_keys=[key["fingerprint"]])
    assert do_api.droplets()[0].public_keys == (public,)
    keys.delete(key["id"])
    assert keys.list()["ssh_keys"] == []


def test_a_project_holds_resources_until_they_are_gone(do_api: DigitalOceanBox) -> None:
    """A droplet is in the default one first; a project that isn't empty can't be deleted."""
    client, number = do_api.client(), create(do_api)
    urn = f"do:droplet:{number}"
    assert [one["urn"] for one in client.projects.list_resources_default()["resources"]] == [urn]
    project = client.projects.create({"name": "kedge", "purpose": "Machine learning"})["project"]["id"]
    resources = {"resources": [urn, "do:droplet:1"]}
    answer = client.projects.assign_resources(project, resources)["resources"]
    assert [one["status"] for one in answer] == ["assigned", "not_found"]
    assert client.projects.list_resources_default()["resources"] == []
    assert status_of(client.projects.delete, project) == 412
    client.droplets.destroy(number)
    client.projects.delete(project)
    assert [one["is_default"] for one in client.projects.list()["projects"]] == [True]


def test_a_reserved_address_is_free_of_charge_only_while_it_is_used(do_api: DigitalOceanBox) -> None:
    """It stays when its droplet is gone, and bills from then on."""
    client, number = do_api.client(), create(do_api)
    ip = client.reserved_ips.create({"droplet_id": number})["reserved_ip"]["ip"]
    assert [bill.kind for bill in do_api.meter.billing()] == ["droplet"]
    client.droplets.destroy(number)
    assert client.reserved_ips.get(ip)["reserved_ip"]["droplet"] is None
    assert [bill.kind for bill in do_api.meter.billing()] == ["reserved_ip"]
    client.reserved_ips.delete(ip)
    assert not do_api.meter.billing()


def test_a_droplet_is_in_its_regions_default_network(do_api: DigitalOceanBox) -> None:
    """Another region's network is refused."""
    client, number = do_api.client(), create(do_api)
    (vpc,) = client.vpcs.list()["vpcs"]
    assert (vpc["region"], vpc["default"]) == ("tor1", True)
    assert client.droplets.get(number)["droplet"]["vpc_uuid"] == vpc["id"]
    assert [one["urn"] for one in client.vpcs.list_members(vpc["id"])["members"]] == [f"do:droplet:{number}"]
    assert status_of(client.droplets.create, order(region="nyc2", vpc_uuid=vpc["id"])) == 422
