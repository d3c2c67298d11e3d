"""What every provider promises, run over all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.offer import Accelerators, Offer
from orchestrator.core.ports import Provider
from tests.contract.conftest import World


def wait_gone(provider: Provider, machine_id: str) -> None:
    end = time.monotonic() + 30
    while provider.describe(machine_id) is not None:
        assert time.monotonic() < end, f"{machine_id} is still there"
        time.sleep(0.05)


def wait_ready(provider: Provider, machine_id: str) -> Machine:
    end = time.monotonic() + 30
    while (machine := provider.describe(machine_id)) is None or machine.state is not MachineState.READY:
        assert time.monotonic() < end, f"{machine_id} never becomes ready: {machine}"
        time.sleep(0.05)
    return machine


def ids(provider: Provider) -> list[str]:
    return sorted(machine.id for machine in provider.machines())


def test_nothing_is_there_at_first(world: World) -> None:
    """A provider that was never used lists nothing, and knows no machine."""
    assert ids(world.again()) == []
    assert world.again().describe("run-1a2b-m1") is None


def test_offers_are_priced_and_name_their_provider(world: World) -> None:
    """Without wishes there is something for sale, at a price that isn't negative."""
    offers = world.again().offers(Resources())
    assert offers
    assert all(offer.provider == world.name and offer.usd_per_hour >= 0 for offer in offers)


def test_a_wish_that_nobody_can_grant_leaves_no_offer(world: World) -> None:
    """Nothing for sale is an empty list, or a refusal that says why; never another machine."""
    refusal: KedgeError | None = None
    offers: Sequence[Offer] = ()
    try:
        offers = world.again().offers(Resources(accelerators=Accelerators(name="abacus", count=8)))
    except (BadRequestError, NoCapacityError) as err:
        refusal = err
    assert list(offers) == []
    assert refusal is None or ("abacus" in refusal.what and refusal.why and refusal.fix)


def test_a_region_that_does_not_exist_is_refused(world: World) -> None:
    """A wish that the provider doesn't know is a bad request, not an absence of capacity."""
    with pytest.raises(BadRequestError, match="atlantis"):
        world.again().offers(Resources(regions=("atlantis",)))


def test_a_machine_is_made_as_ordered(world: World) -> None:
    """It is ready in a while, has an address and a host key then, and its deadline counts from its creation."""
    before = datetime.now(UTC)
    order = world.order("run-1a2b-m1")
    machine = world.again().create(order)
    assert (machine.id, machine.run_id, machine.provider) == ("run-1a2b-m1", "run-1a2b", world.name)
    assert machine.state in (MachineState.BOOTING, MachineState.READY)
    assert machine.usd_per_hour == order.usd_per_hour
    # A box whose waiting takes no time is ahead of this computer's clock.
    assert before - timedelta(seconds=5) <= machine.created_at <= datetime.now(UTC) + timedelta(minutes=10)
    assert machine.deadline_at - machine.created_at == timedelta(seconds=order.lifetime_seconds)
    ready = wait_ready(world.again(), "run-1a2b-m1")
    assert ready.address is not None
    assert ready.address.host_key.startswith(("ssh-ed25519 ", "ecdsa-sha2-nistp256 "))


def test_a_machine_is_found_by_the_next_command(world: World) -> None:
    """What was created is read from the provider, not remembered."""
    made = world.again().create(world.order("run-1a2b-m1"))
    found = wait_ready(world.again(), "run-1a2b-m1")
    assert replace(found, state=made.state, address=made.address) == made
    assert made.address in (None, found.address)
    assert list(world.again().machines()) == [found]


def test_an_order_that_is_repeated_makes_one_machine(world: World) -> None:
    """The order's id is the key: the second time returns what is there."""

    def identity(machine: Machine) -> tuple[object, ...]:
        return machine.provider_id, machine.created_at, machine.deadline_at, machine.address

    world.again().create(world.order("run-1a2b-m1"))
    first = wait_ready(world.again(), "run-1a2b-m1")
    second = world.again().create(world.order("run-1a2b-m1"))
    assert identity(first) == identity(second)
    assert ids(world.again()) == ["run-1a2b-m1"]


def test_a_destroyed_machine_is_gone_for_good(world: World) -> None:
    """It is confirmed as gone, no longer listed, and nothing of it is left; destroying it again is no error."""
    provider = world.again()
    provider.create(world.order("run-1a2b-m1"))
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    assert ids(world.again()) == []
    assert world.leftovers() == []
    provider.destroy("run-1a2b-m1")


def test_destroying_what_never_was_is_no_error(world: World) -> None:
    """A teardown after a crash doesn't know how far the creation came."""
    world.again().destroy("run-1a2b-m7")
    assert world.again().describe("run-1a2b-m7") is None


def test_destroying_one_machine_leaves_the_others(world: World) -> None:
    """One whose id begins like another's included."""
    provider = world.again()
    for machine_id in ("run-1a2b-m1", "run-1a2b-m10", "run-1a2b-m2"):
        provider.create(world.order(machine_id))
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    assert ids(provider) == ["run-1a2b-m10", "run-1a2b-m2"]
    assert all(wait_ready(provider, name) for name in ids(provider))


def test_guarding_a_machine_changes_nothing_of_it(world: World) -> None:
    """What ends it from outside is in place since its creation; done again, or for none, it is no error."""
    provider = world.again()
    provider.create(world.order("run-1a2b-m1"))
    before = wait_ready(provider, "run-1a2b-m1"), world.leftovers()
    for machine_id in ("run-1a2b-m1", "run-1a2b-m1", "run-1a2b-m7"):
        world.again().guard(machine_id)
    assert (world.again().describe("run-1a2b-m1"), world.leftovers()) == before


def test_a_machine_is_not_opened_again_to_the_address_that_it_is_open_to(world: World) -> None:
    """Nothing changes for a computer that is where it was, nor for a machine that never was."""
    provider = world.again()
    order = world.order("run-1a2b-m1")
    provider.create(order)
    assert not world.again().reopen("run-1a2b-m1", order.ssh_from)
    assert not world.again().reopen("run-1a2b-m7", order.ssh_from)


def test_a_sweep_finds_what_a_run_has_until_it_is_released(world: World) -> None:
    """A command that never heard of the run finds its machine; once it is gone and released, nothing is found."""
    world.again().create(world.order("run-1a2b-m1"))
    found = world.again().sweep()
    assert [machine.id for machine in found.machines] == ["run-1a2b-m1"]
    assert {left.run_id for left in found.leftovers} <= {"run-1a2b"}
    provider = world.again()
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    provider.release("run-1a2b")
    left = world.again().sweep()
    assert (left.machines, left.leftovers, left.unseen) == ((), (), ())


@pytest.mark.parametrize("machine_id", ["", "..", "../state", "a/b", "a b", "-x"])
def test_an_id_that_could_be_something_else_is_refused(world: World, machine_id: str) -> None:
    """An id becomes a path or a tag: what isn't one is refused before anything is looked up."""
    with pytest.raises(BadRequestError):
        world.again().destroy(machine_id)
