"""The life of a machine at DigitalOcean: what is created before it, its listing, its end, and its complete removal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.machine import EndedBy, MachineState
from tests.adapters.digitalocean.world import GPU, HOME, KEY, M1, PLAIN, RUN, DoWorld

SHARED = {"tag kedge", "tag kedge-created"}
"""Tags that all runs share: deleting one would take it from a droplet that another command makes at that moment."""


def left(do: DoWorld) -> set[str]:
    return {
        name
        for name in do.leftovers()
        # The account keeps the laptop's key for its next run.
        if name not in SHARED and "kedge-volume:" not in name and not name.startswith("key kedge-")
    }


def firewall(do: DoWorld) -> Any:
    (only,) = do.api.cloud.account.firewalls.values()
    return only


def test_key_tag_firewall_and_project_exist_before_the_droplet(new_do: DoWorld) -> None:
    """From its first second a droplet is closed, and listed with its run."""
    do = new_do
    do.provider().create(do.order())
    paths = [call.path for call in do.api.calls.find("POST")]
    made = ["/v2/account/keys", "/v2/tags", "/v2/projects", "/v2/firewalls", "/v2/droplets"]
    assert list(dict.fromkeys(path for path in paths if path in made)) == made
    (droplet,) = do.api.droplets()
    assert droplet.public_keys == (KEY,)
    project = next(each for each in do.api.cloud.account.projects.values() if not each.is_default)
    assert project.name == f"kedge {RUN}"
    assert f"do:droplet:{droplet.id}" in project.resources


def test_only_the_caller_s_address_reaches_port_22_and_all_outgoing_traffic_is_allowed(do: DoWorld) -> None:
    """The firewall applies to the run's tag, so every droplet of the run has it."""
    do.provider().create(do.order())
    rules = firewall(do)
    assert rules.tags == [f"kedge-run:{RUN}"]
    (inbound,) = rules.inbound_rules
    assert (inbound["protocol"], inbound["ports"]) == ("tcp", "22")
    assert inbound["sources"]["addresses"] == [HOME]
    assert {rule["protocol"] for rule in rules.outbound_rules} == {"tcp", "udp", "icmp"}


def test_a_second_machine_of_a_run_uses_the_existing_resources(do: DoWorld) -> None:
    """The laptop's record saves the calls."""
    do.provider().create(do.order())
    do.api.calls.reset()
    do.provider().create(do.order(2))
    assert [call.path for call in do.api.calls.find("POST")] == [
        "/v2/droplets",
        next(call.path for call in do.api.calls.find("POST") if call.path.endswith("/resources")),
    ]


def test_a_firewall_of_the_user_stays_as_it_was(do: DoWorld) -> None:
    """The user attached their own firewall to the run's tag. kedge neither opens, nor reports, nor deletes it."""
    do.api.client().tags.create({"name": f"kedge-run:{RUN}"})
    rule = {"protocol": "tcp", "ports": "443", "sources": {"addresses": ["10.0.0.0/8"]}}
    theirs = {"name": "office", "inbound_rules": [rule], "tags": [f"kedge-run:{RUN}"]}
    made = do.api.client().firewalls.create(theirs)["firewall"]["id"]
    do.provider().create(do.order())
    do.provider().reopen(M1, "198.51.100.9/32")
    assert len(do.api.cloud.account.firewalls) == 2
    do.provider().destroy(M1)
    do.provider().release(RUN)
    only = firewall(do)
    assert (only.id, only.name) == (made, "office")
    assert [each["ports"] for each in only.inbound_rules] == ["443"]
    assert do.provider().sweep().leftovers == ()


def test_a_firewall_without_a_record_is_used_again(do: DoWorld) -> None:
    """A command died after creating it. There is one firewall, open only to the current address."""
    do.provider().create(do.order())
    other = do.other_laptop()
    other.provider().create(do.order(2, ssh_from="198.51.100.9/32"))
    assert firewall(do).inbound_rules[0]["sources"]["addresses"] == ["198.51.100.9/32"]


def test_a_new_address_replaces_the_previous_one(do: DoWorld) -> None:
    """The laptop has moved: its machine admits the new address, and no longer the old one."""
    do.provider().create(do.order())
    do.api.calls.reset()
    assert not do.provider().reopen(M1, HOME)
    assert len(do.api.calls.find("PUT")) == 0
    assert do.provider().reopen(M1, "198.51.100.9/32")
    assert firewall(do).inbound_rules[0]["sources"]["addresses"] == ["198.51.100.9/32"]
    # By then the change applies to the droplet. fact: do-firewall-pending
    assert do.api.client().firewalls.list()["firewalls"][0]["pending_changes"] == []
    assert not do.provider().reopen(M1, "198.51.100.9/32")


def test_an_ssh_key_that_the_account_already_has_is_used(new_do: DoWorld) -> None:
    """Somebody registered it in the account under another name."""
    do = new_do
    do.api.client().ssh_keys.create({"name": "mine", "public_key": KEY})
    do.provider().create(do.order())
    do.provider().destroy(M1)
    do.provider().release(RUN)
    assert left(do) == {"key mine"}


def test_a_token_without_access_to_projects_is_enough(do: DoWorld) -> None:
    """A project only groups resources on the console. Nothing that ends or guards a machine depends on it."""
    do.api.faults.fail_next("*", "/v2/projects", status=403, times=None)
    do.provider().create(do.order())
    do.provider().destroy(M1)
    do.provider().release(RUN)
    assert left(do) == set()


@pytest.mark.parametrize("size", [GPU, PLAIN])
def test_a_droplet_is_found_in_either_listing(do: DoWorld, size: str) -> None:
    """The plain listing leaves GPU droplets out, and the GPU listing cannot be filtered by tag."""
    do.provider().create(do.order(instance_type=size))
    (machine,) = do.other_laptop().provider().machines()
    assert (machine.id, machine.run_id) == (M1, RUN)
    assert (machine.usd_per_hour, machine.region) == (Decimal("1.99"), "tor1")
    assert machine.deadline_at - machine.created_at == timedelta(hours=1)


def test_droplets_of_others_are_not_machines(do: DoWorld) -> None:
    """Other droplets of the account, with or without GPUs, are neither listed nor changed."""
    body = {"region": "tor1", "image": "ubuntu-24-04-x64", "tags": ["web"]}
    for size in (GPU, PLAIN):
        do.api.client().droplets.create({"name": "theirs", "size": size, **body})
    assert list(do.provider().machines()) == []
    do.provider().create(do.order())
    do.provider().destroy(M1)
    do.provider().release(RUN)
    assert len(do.api.droplets()) == 2


def test_an_id_with_dots_is_written_as_a_tag(do: DoWorld) -> None:
    """Tags cannot have dots, but ids can."""
    do.provider().create(do.order(id="v1.5_a-m1", run_id="v1.5_a"))
    (machine,) = do.provider().machines()
    assert (machine.id, machine.run_id) == ("v1.5_a-m1", "v1.5_a")
    do.provider().destroy("v1.5_a-m1")
    do.provider().release("v1.5_a")
    assert left(do) == set()


def test_a_booting_droplet_has_no_address_yet(do: DoWorld) -> None:
    """`new` is booting, and so is `active` without an address. `active` with an address is ready."""
    do.api.settings.address_seconds = 30
    do.provider().create(do.order())
    (droplet,) = do.api.droplets()
    droplet.active_at = do.clock.now().timestamp() + 30
    for status in ("new", "active"):
        young = do.provider().describe(M1)
        assert (droplet.status(do.clock.now().timestamp()), young and young.state) == (status, MachineState.BOOTING)
        do.api.advance(31)
    ready = do.provider().describe(M1)
    assert ready is not None
    assert ready.state is MachineState.READY
    assert ready.address is not None


def test_only_its_own_laptop_knows_a_machine_s_host_key(do: DoWorld) -> None:
    """Another laptop can list and end the machine, and trusts no host key for it."""
    do.provider().create(do.order())
    seen = do.other_laptop().provider().describe(M1)
    assert seen is not None
    assert seen.address is None
    do.provider().pin(M1, "ssh-ed25519 AAAA")
    pinned = do.provider().describe(M1)
    assert pinned is not None
    assert pinned.address is not None
    assert (pinned.address.host_key, pinned.address.provisional) == ("ssh-ed25519 AAAA", False)


def test_a_powered_off_droplet_counts_as_ending_and_is_reported_as_billing(do: DoWorld) -> None:
    """It computes nothing and costs the same. Only its deletion ends the bill."""
    machine = do.provider().create(do.order())
    do.api.client().droplet_actions.post(int(machine.provider_id), {"type": "power_off"})
    off = do.provider().describe(M1)
    assert off is not None
    assert off.state is MachineState.ENDING
    end = do.provider().why_ended(M1)
    assert end is not None
    assert end.by is EndedBy.ITSELF
    assert "bills until it is deleted" in end.says
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None
    assert do.provider().why_ended(M1) is None


def test_a_young_droplet_that_the_api_does_not_know_yet_is_not_lost(do: DoWorld) -> None:
    """It answers 404 and is missing in both listings for up to a minute."""
    do.api.settings.not_found_seconds = do.api.settings.unlisted_seconds = 60
    begun = do.clock.now()
    do.provider().create(do.order())
    do.api.cloud.clock.advance(-(do.clock.now() - begun).total_seconds())
    seen = do.provider().describe(M1)
    assert seen is not None
    assert seen.state is MachineState.BOOTING
    assert [machine.id for machine in do.provider().machines()] == [M1]


def test_guarding_a_complete_machine_changes_nothing(do: DoWorld) -> None:
    """DigitalOcean has no schedule that could end a droplet, so there is nothing to create."""
    do.provider().create(do.order())
    do.api.calls.reset()
    do.provider().guard(M1)
    assert {call.method for call in do.api.calls if not call.path.endswith("/resources")} == {"GET"}


@pytest.mark.parametrize(
    ("message", "status", "covers_other_region", "covers_other_size"),
    [
        ("Size is not available in this region.", 422, False, False),
        ("Region is not available", 422, False, False),
        ("creating this/these droplet(s) will exceed your droplet limit", 422, True, True),
        ("creating this/these droplet(s) will exceed your GPU limit", 422, True, False),
        ("This size is not available to your account: contact support for GPU access.", 403, True, False),
    ],
)
def test_a_refusal_says_which_offers_it_rules_out(
    do: DoWorld, message: str, status: int, covers_other_region: bool, covers_other_size: bool
) -> None:
    """Lack of capacity looks like a bad request. The account's limit applies everywhere, its tier to the size.

    fact: do-gpu-limit
    """
    do.api.faults.fail_next("POST", "/v2/droplets", status=status, message=message)
    (offer, *_) = do.provider().offers(_gpu())
    elsewhere = replace(offer, region="nyc2")
    with pytest.raises(NoCapacityError) as caught:
        do.provider().create(do.order())
    assert caught.value.why
    assert caught.value.fix
    assert caught.value.covers(elsewhere) is covers_other_region
    plain = replace(elsewhere, instance_type=PLAIN, accelerators=None)
    assert caught.value.covers(plain) is covers_other_size
    assert list(do.provider().machines()) == []


def test_another_refusal_is_not_a_lack_of_capacity(do: DoWorld) -> None:
    """The next offer would be refused as well."""
    do.api.faults.fail_next("POST", "/v2/droplets", status=422, message="Name is invalid")
    with pytest.raises(KedgeError) as caught:
        do.provider().create(do.order())
    assert not isinstance(caught.value, NoCapacityError | StillBillingError)
    assert "Name is invalid" in caught.value.why


def test_a_run_of_another_account_is_not_taken_for_gone(do: DoWorld) -> None:
    """Another token does not list its droplets, which keep billing."""
    do.provider().create(do.order())
    record = next((do.folder / "do" / "machines").glob("*.json"))
    record.write_text(record.read_text().replace(_account(do), "another-account"))
    do.api.cloud.account.droplets.clear()
    do.api.advance(100)
    for act in (do.provider().describe, do.provider().destroy):
        with pytest.raises(BadRequestError, match="another account"):
            act(M1)
    with pytest.raises(BadRequestError, match="another account"):
        do.provider().release(RUN)


def _account(do: DoWorld) -> str:
    account = do.api.client().account.get()["account"]
    return str((account.get("team") or {}).get("uuid") or account["uuid"])


def _gpu() -> Any:
    from orchestrator.core.job import Resources
    from orchestrator.core.offer import Accelerators

    return Resources(accelerators=Accelerators(name="mi300x"), regions=("tor1",))
