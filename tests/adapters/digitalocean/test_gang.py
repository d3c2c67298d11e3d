"""Several droplets of a run: one private network, and a firewall that admits them to each other."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine
from tests.adapters.digitalocean.world import HOME, PLAIN, RUN, DoWorld, offers
from tests.cloudbox.digitalocean.account.state import Droplet

OTHER = "198.51.100.9/32"


def create(do: DoWorld, rank: int, num_nodes: int = 2) -> Machine:
    return do.provider().create(do.order(rank + 1, rank=rank, num_nodes=num_nodes))


def may_reach(do: DoWorld, source: Droplet, target: Droplet, port: int) -> bool:
    """Tell whether the firewalls of a droplet let another one reach it."""
    firewalls = [each for each in do.api.cloud.account.firewalls.values() if each.concerns(target)]
    assert firewalls, "a droplet without a firewall is open to everybody"
    rules = [
        rule
        for firewall in firewalls
        for rule in firewall.inbound_rules
        if rule["protocol"] == "tcp" and rule["ports"] in ("all", str(port))
    ]
    tags = {tag for rule in rules for tag in rule["sources"].get("tags", [])}
    addresses = {each for rule in rules for each in rule["sources"].get("addresses", [])}
    assert addresses <= {HOME, OTHER}
    return not tags.isdisjoint(source.tags)


def droplet_of(do: DoWorld, machine: Machine) -> Droplet:
    return do.api.cloud.account.droplets[int(machine.provider_id)]


def test_the_droplets_of_a_run_reach_each_other_and_nobody_else_does(do: DoWorld) -> None:
    """On every port, after a change of the laptop's address too; another droplet of the VPC reaches none.

    fact: do-firewall-peers
    """
    head, second = (droplet_of(do, create(do, rank)) for rank in (0, 1))
    order = do.order(1, id="other-1121-ab2c-m1", run_id="other-1121-ab2c")
    stranger = droplet_of(do, do.provider().create(order))
    assert head.vpc_uuid == second.vpc_uuid == stranger.vpc_uuid
    for _ in range(2):
        assert may_reach(do, head, second, 29500)
        assert may_reach(do, second, head, 29500)
        for port in (22, 29500):
            assert not may_reach(do, stranger, head, port)
            assert not may_reach(do, head, stranger, port)
        do.provider().reopen(f"{RUN}-m1", OTHER)


def test_droplets_that_do_not_all_fit_are_refused_before_the_first(do: DoWorld) -> None:
    """The account's limit is read before anything is created; machines of the run that are there count as its own.

    fact: do-droplet-limit
    """
    create(do, 1, num_nodes=3)
    do.api.advance(60)
    do.api.settings.droplet_limit = 2
    with pytest.raises(NoCapacityError, match="no room for 3 droplets") as caught:
        create(do, 0, num_nodes=3)
    assert caught.value.why == "it may have 2, and has 1"
    assert caught.value.covers(do.order().offer)
    assert len(do.api.droplets()) == 1
    create(do, 0, num_nodes=2)
    assert len(do.api.droplets()) == 2


def test_a_plan_says_whether_droplets_fit(do: DoWorld) -> None:
    """It is refused for what isn't kedge's; kedge's own may be the run's, which the plan ends first."""
    do.api.settings.droplet_limit = 2
    assert offers(do, instance_type=PLAIN, num_nodes=2)
    assert do.provider().caveats == do.other_laptop().provider().caveats
    create(do, 0)
    do.api.advance(60)
    provider = do.provider()
    provider.offers(Resources(instance_type=PLAIN, num_nodes=2))
    assert "2 others fit only if some of these end before" in " ".join(provider.caveats)
    do.enter_key()
    keys = [key["id"] for key in do.api.client().ssh_keys.list()["ssh_keys"]]
    image = {"name": "mine", "region": "tor1", "size": PLAIN, "image": "ubuntu-24-04-x64", "ssh_keys": keys}
    do.api.client().droplets.create(image)
    do.api.advance(60)
    with pytest.raises(NoCapacityError, match="no room for 2 droplets"):
        offers(do, instance_type=PLAIN, num_nodes=2)
    assert offers(do, instance_type=PLAIN)


def test_a_droplet_knows_its_rank_and_its_private_address(do: DoWorld) -> None:
    """The rank is in this computer's record, the address in the API's answer."""
    for rank in (0, 1):
        create(do, rank)
    do.api.advance(do.api.settings.activation_seconds + do.api.settings.address_seconds)
    machines = sorted(do.provider().machines(), key=lambda machine: machine.rank)
    assert [machine.rank for machine in machines] == [0, 1]
    addresses = [machine.private_address for machine in machines]
    assert len(set(addresses)) == 2
    assert all(address.startswith("10.") for address in addresses)


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_only_a_run_with_several_droplets_has_rules_for_them(do: DoWorld, num_nodes: int) -> None:
    """One alone is open to its owner's port 22 only."""
    create(do, 0, num_nodes)
    (firewall,) = do.api.cloud.account.firewalls.values()
    rules: list[dict[str, Any]] = firewall.inbound_rules
    assert len([rule for rule in rules if "tags" in rule["sources"]]) == (3 if num_nodes > 1 else 0)
    assert len([rule for rule in rules if "addresses" in rule["sources"]]) == 1
