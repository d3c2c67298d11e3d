"""What an account has besides instances: keys, filesystems and firewall rules."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.cloudbox.lambdacloud.account import OPEN
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.orders import PUBLIC_KEY, REGION, add_key, code_of, launch, order, terminate

INVALID = (400, "global/invalid-parameters")
RULE: dict[str, object] = {
    "protocol": "tcp",
    "port_range": [22, 22],
    "source_network": "192.0.2.1/32",
    "description": "me",
}


def create_filesystem(lam: LambdaBox, name: str = "data", region: str = REGION) -> str:
    reply = lam.client().call("POST", "/api/v1/filesystems", {"name": name, "region": region})
    assert reply.status == 200, reply
    return str(reply.json["data"]["id"])


def create_ruleset(lam: LambdaBox, rules: list[dict[str, object]], region: str = REGION) -> str:
    reply = lam.client().call("POST", "/api/v1/firewall-rulesets", {"name": "r", "region": region, "rules": rules})
    assert reply.status == 200, reply
    return str(reply.json["data"]["id"])


def test_what_an_instance_has_can_not_be_deleted_until_that_is_gone(lambda_api: LambdaBox) -> None:
    """Its key, its filesystem and its ruleset: also while it is terminating. fact: lambda-in-use-while-terminating."""
    client, key, disk = lambda_api.client(), add_key(lambda_api), create_filesystem(lambda_api)
    rules = create_ruleset(lambda_api, [RULE])
    made = launch(lambda_api, file_system_names=["data"], firewall_rulesets=[{"id": rules}])
    held = {
        f"/api/v1/ssh-keys/{key}": INVALID,
        f"/api/v1/filesystems/{disk}": (400, "filesystems/filesystem-in-use"),
        f"/api/v1/firewall-rulesets/{rules}": (400, "firewall-rulesets/firewall-ruleset-in-use"),
    }
    lambda_api.settings.ending_seconds = 90
    for act in (lambda: None, lambda: terminate(lambda_api, made)):
        act()
        assert {path: code_of(client.call("DELETE", path)) for path in held} == held
    lambda_api.advance(91)
    assert {client.call("DELETE", path).status for path in held} == {200}


def test_two_keys_may_have_one_name(lambda_api: LambdaBox) -> None:
    """Nobody says that they can't: which of them a launch takes is the box's secret."""
    ids = {add_key(lambda_api), add_key(lambda_api)}
    assert len(ids) == 2
    shown = lambda_api.client().call("GET", "/api/v1/ssh-keys").json["data"]
    assert [(key["name"], key["public_key"]) for key in shown] == [("laptop", PUBLIC_KEY)] * 2
    assert code_of(lambda_api.client().call("DELETE", "/api/v1/ssh-keys/none")) == (404, "global/not-found")


def test_a_key_without_a_public_one_is_a_new_pair(lambda_api: LambdaBox) -> None:
    """Whose private key went over the wire. fact: lambda-makes-key-pairs."""
    made = lambda_api.client().call("POST", "/api/v1/ssh-keys", {"name": "pair"}).json["data"]
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert made["private_key"] in lambda_api.secrets()
    wrong = {"name": "pair", "public_key": "none"}
    assert code_of(lambda_api.client().call("POST", "/api/v1/ssh-keys", wrong)) == INVALID


def test_filesystems_are_made_at_another_path_than_they_are_listed_at(lambda_api: LambdaBox) -> None:
    """405 at the other one. fact: lambda-two-filesystem-paths."""
    made, client = create_filesystem(lambda_api), lambda_api.client()
    assert [one["id"] for one in client.call("GET", "/api/v1/file-systems").json["data"]] == [made]
    body = {"name": "more", "region": REGION}
    assert client.call("POST", "/api/v1/file-systems", body).status == 405
    assert code_of(client.call("POST", "/api/v1/filesystems", body | {"name": "data"})) == (400, "global/duplicate")
    assert code_of(client.call("POST", "/api/v1/filesystems", body | {"name": "no_underscore"})) == INVALID


def test_a_filesystem_bills_until_it_is_deleted(lambda_api: LambdaBox) -> None:
    """By its bytes, attached or not; it must be in the region of the launch. fact: lambda-filesystems-bill."""
    made = create_filesystem(lambda_api, region="us-west-1")
    lambda_api.cloud.account.filesystems[made].bytes_used = 730 * 2**30
    lambda_api.advance(3600)
    assert [bill.id for bill in lambda_api.meter.billing()] == [made]
    lambda_api.advance(36_000)
    assert Decimal("1.99") < lambda_api.meter.usd() < Decimal("2.21")
    add_key(lambda_api)
    body = order(instance_type_name="gpu_1x_a10")
    wrong = lambda_api.client().call(
        "POST", "/api/v1/instance-operations/launch", {**body, "file_system_names": ["data"]}
    )
    assert code_of(wrong) == (400, "instance-operations/launch/file-system-in-wrong-region")


def test_there_are_24_filesystems_at_most(lambda_api: LambdaBox) -> None:
    """Whatever their size. fact: lambda-filesystem-limit."""
    for number in range(24):
        create_filesystem(lambda_api, f"data{number}")
    body = {"name": "more", "region": REGION}
    refused = lambda_api.client().call("POST", "/api/v1/filesystems", body)
    assert code_of(refused) == (400, "global/quota-exceeded")


def test_everybody_may_reach_port_22_and_the_rules_are_everybodys(lambda_api: LambdaBox) -> None:
    """Who changes them changes other people's machines: the box takes it for a mistake.

    fact: lambda-default-firewall; fact: lambda-global-rules-are-everybodys
    """
    client = lambda_api.client()
    rules = client.call("GET", "/api/v1/firewall-rules").json["data"]
    assert OPEN in rules
    assert client.call("GET", "/api/v1/firewall-rulesets/global").json["data"]["rules"] == rules
    lambda_api.settings.may_change_global_rules = True
    assert client.call("PUT", "/api/v1/firewall-rules", {"data": [RULE]}).json["data"] == [RULE]
    assert not lambda_api.broken
    lambda_api.settings.may_change_global_rules = False
    assert client.call("PATCH", "/api/v1/firewall-rulesets/global", {"rules": []}).status == 200
    assert lambda_api.broken
    lambda_api.reset()


def test_rulesets_are_of_a_region_and_change_under_running_instances(lambda_api: LambdaBox) -> None:
    """A launch elsewhere doesn't know them, and one with too many rules may fail.

    fact: lambda-many-rules-fail-launches
    """
    client, rules = lambda_api.client(), create_ruleset(lambda_api, [RULE], region="us-west-1")
    path = f"/api/v1/firewall-rulesets/{rules}"
    add_key(lambda_api)
    body = order(instance_type_name="gpu_1x_a10", firewall_rulesets=[{"id": rules}])
    refused = client.call("POST", "/api/v1/instance-operations/launch", body)
    assert code_of(refused) == (404, "global/object-does-not-exist")
    made = launch(
        lambda_api, region_name="us-west-1", instance_type_name="gpu_1x_a10", firewall_rulesets=[{"id": rules}]
    )
    assert client.call("PATCH", path, {"rules": [RULE] * 21}).json["data"]["instance_ids"] == [made]
    refused = client.call("POST", "/api/v1/instance-operations/launch", {**body, "region_name": "us-west-1"})
    assert code_of(refused) == INVALID
    assert client.call("GET", "/api/v1/firewall-rulesets").json["data"][0]["id"] == rules


@pytest.mark.parametrize(
    "wrong",
    [
        {"port_range": [23, 22]},
        {"port_range": [0, 22]},
        {"protocol": "icmp"},
        {"source_network": "192.0.2.1/24"},
        {"source_network": "::/0"},
        {"description": "d" * 129},
    ],
    ids=str,
)
def test_a_rule_must_be_one(lambda_api: LambdaBox, wrong: dict[str, object]) -> None:
    """Networks and ports in order; ports of tcp and udp only."""
    body = {"name": "r", "region": REGION, "rules": [{**RULE, **wrong}]}
    assert code_of(lambda_api.client().call("POST", "/api/v1/firewall-rulesets", body)) == INVALID
