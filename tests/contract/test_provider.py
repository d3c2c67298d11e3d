"""What every provider promises, tested with all of them."""

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
    end = time.monotonic() + 120
    while provider.describe(machine_id) is not None:
        assert time.monotonic() < end, f"{machine_id} is still there"
        time.sleep(0.05)


def wait_ready(provider: Provider, machine_id: str) -> Machine:
    end = time.monotonic() + 120
    while (machine := provider.describe(machine_id)) is None or machine.state is not MachineState.READY:
        assert time.monotonic() < end, f"{machine_id} never becomes ready: {machine}"
        time.sleep(0.05)
    return machine


def ids(provider: Provider) -> list[str]:
    return sorted(machine.id for machine in provider.machines())


def test_a_new_provider_has_no_machines(world: World) -> None:
    """One that was never used lists nothing, and finds no machine by its id."""
    assert ids(world.open_provider()) == []
    assert world.open_provider().describe("run-1a2b-m1") is None


def test_offers_are_priced_and_name_their_provider(world: World) -> None:
    """Without requirements there is something for sale, at a price that isn't negative."""
    offers = world.open_provider().offers(Resources())
    assert offers
    assert all(offer.provider == world.name and offer.usd_per_hour >= 0 for offer in offers)


def test_an_unknown_accelerator_gets_no_offer(world: World) -> None:
    """An empty list, or a refusal that says why; never another kind of machine."""
    refusal: KedgeError | None = None
    offers: Sequence[Offer] = ()
    try:
        offers = world.open_provider().offers(Resources(accelerators=Accelerators(name="abacus", count=8)))
    except (BadRequestError, NoCapacityError) as err:
        refusal = err
    assert list(offers) == []
    assert refusal is None or ("abacus" in refusal.what and refusal.why and refusal.fix)


def test_a_region_that_does_not_exist_is_refused(world: World) -> None:
    """A region that the provider doesn't know is a bad request, not a lack of capacity."""
    with pytest.raises(BadRequestError, match="atlantis"):
        world.open_provider().offers(Resources(regions=("atlantis",)))


def test_a_machine_is_created_as_ordered(world: World) -> None:
    """It becomes ready with an address and a host key, and its deadline counts from its creation."""
    before = datetime.now(UTC)
    order = world.order("run-1a2b-m1")
    machine = world.open_provider().create(order)
    assert (machine.id, machine.run_id, machine.provider) == ("run-1a2b-m1", "run-1a2b", world.name)
    assert machine.state in (MachineState.BOOTING, MachineState.READY)
    assert machine.usd_per_hour == order.usd_per_hour
    # A box that skips waiting times is ahead of this computer's clock.
    assert before - timedelta(seconds=5) <= machine.created_at <= datetime.now(UTC) + timedelta(minutes=10)
    assert machine.deadline_at - machine.created_at == timedelta(seconds=order.lifetime_seconds)
    ready = wait_ready(world.open_provider(), "run-1a2b-m1")
    assert ready.address is not None
    assert ready.address.host_key.startswith(("ssh-ed25519 ", "ecdsa-sha2-nistp256 "))


def test_a_machine_is_found_by_the_next_command(world: World) -> None:
    """The machine is read from the provider, not from memory."""
    made = world.open_provider().create(world.order("run-1a2b-m1"))
    found = wait_ready(world.open_provider(), "run-1a2b-m1")
    assert replace(found, state=made.state, address=made.address) == made
    assert made.address in (None, found.address)
    assert list(world.open_provider().machines()) == [found]


def test_an_order_that_is_repeated_makes_one_machine(world: World) -> None:
    """The order's id is the idempotency key: the second creation returns the existing machine."""

    def identity(machine: Machine) -> tuple[object, ...]:
        return machine.provider_id, machine.created_at, machine.deadline_at, machine.address

    world.open_provider().create(world.order("run-1a2b-m1"))
    first = wait_ready(world.open_provider(), "run-1a2b-m1")
    second = world.open_provider().create(world.order("run-1a2b-m1"))
    assert identity(first) == identity(second)
    assert ids(world.open_provider()) == ["run-1a2b-m1"]


def test_a_destroyed_machine_is_gone_for_good(world: World) -> None:
    """It is no longer found or listed, and nothing of it is left. Destroying it again is no error."""
    provider = world.open_provider()
    provider.create(world.order("run-1a2b-m1"))
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    assert ids(world.open_provider()) == []
    assert world.leftovers() == []
    provider.destroy("run-1a2b-m1")


def test_destroying_a_machine_that_never_existed_is_no_error(world: World) -> None:
    """A teardown after a crash doesn't know how far the creation got."""
    world.open_provider().destroy("run-1a2b-m7")
    assert world.open_provider().describe("run-1a2b-m7") is None


def test_destroying_one_machine_leaves_the_others(world: World) -> None:
    """Even one whose id begins with the same text."""
    provider = world.open_provider()
    for machine_id in ("run-1a2b-m1", "run-1a2b-m10", "run-1a2b-m2"):
        provider.create(world.order(machine_id))
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    assert ids(provider) == ["run-1a2b-m10", "run-1a2b-m2"]
    assert all(wait_ready(provider, name) for name in ids(provider))


def test_the_machines_of_a_run_keep_their_ranks_and_know_their_private_addresses(world: World) -> None:
    """They need both to find each other, whichever command asks."""
    provider = world.open_provider()
    for rank in (0, 1):
        provider.create(replace(world.order(f"run-1a2b-m{rank + 1}"), rank=rank))
    for machine_id in ("run-1a2b-m1", "run-1a2b-m2"):
        wait_ready(provider, machine_id)
    machines = sorted(world.open_provider().machines(), key=lambda machine: machine.rank)
    assert [(machine.id, machine.rank) for machine in machines] == [("run-1a2b-m1", 0), ("run-1a2b-m2", 1)]
    assert all(machine.private_address for machine in machines)


def test_guarding_a_machine_again_changes_nothing(world: World) -> None:
    """The external guard exists since its creation. Guarding a second time, or an unknown machine, is no error."""
    provider = world.open_provider()
    provider.create(world.order("run-1a2b-m1"))
    before = wait_ready(provider, "run-1a2b-m1"), world.leftovers()
    for machine_id in ("run-1a2b-m1", "run-1a2b-m1", "run-1a2b-m7"):
        world.open_provider().guard(machine_id)
    assert (world.open_provider().describe("run-1a2b-m1"), world.leftovers()) == before


def test_a_deadline_is_moved_and_moved_back(world: World) -> None:
    """The next command and a sweep see the new deadline, another move to it changes nothing, and all else stays.

    fact: do-tags-movable.
    """
    provider = world.open_provider()
    provider.create(world.order("run-1a2b-m1"))
    before, leftovers = wait_ready(provider, "run-1a2b-m1"), world.leftovers()
    later = before.deadline_at + timedelta(hours=2)
    for deadline_at in (later, later, before.deadline_at):
        world.open_provider().move_deadline("run-1a2b-m1", deadline_at)
        seen = world.open_provider().describe("run-1a2b-m1")
        assert seen is not None
        assert timedelta(0) <= deadline_at - seen.deadline_at < timedelta(seconds=1)
        assert replace(seen, deadline_at=before.deadline_at) == before
        assert [each.deadline_at for each in world.open_provider().sweep().machines] == [seen.deadline_at]
        assert world.leftovers() == leftovers
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    provider.release("run-1a2b")
    left = world.open_provider().sweep()
    assert (left.machines, left.leftovers, left.unseen) == ((), (), ())


def test_the_deadline_of_an_unknown_machine_cannot_be_moved(world: World) -> None:
    """An error, not silence: its caller relies on the guard."""
    with pytest.raises(KedgeError):
        world.open_provider().move_deadline("run-1a2b-m7", datetime.now(UTC) + timedelta(hours=1))


def test_reopening_to_the_same_address_changes_nothing(world: World) -> None:
    """Neither for a computer whose address is the same, nor for a machine that never existed."""
    provider = world.open_provider()
    order = world.order("run-1a2b-m1")
    provider.create(order)
    assert not world.open_provider().reopen("run-1a2b-m1", order.ssh_from)
    assert not world.open_provider().reopen("run-1a2b-m7", order.ssh_from)


def test_a_sweep_finds_what_a_run_has_until_it_is_released(world: World) -> None:
    """A command that doesn't know the run finds its machine. After its end and the release nothing is found."""
    world.open_provider().create(world.order("run-1a2b-m1"))
    found = world.open_provider().sweep()
    assert [machine.id for machine in found.machines] == ["run-1a2b-m1"]
    assert {left.run_id for left in found.leftovers} <= {"run-1a2b"}
    provider = world.open_provider()
    provider.destroy("run-1a2b-m1")
    wait_gone(provider, "run-1a2b-m1")
    provider.release("run-1a2b")
    left = world.open_provider().sweep()
    assert (left.machines, left.leftovers, left.unseen) == ((), (), ())


@pytest.mark.parametrize("machine_id", ["", "..", "../state", "a/b", "a b", "-x"])
def test_an_id_that_could_be_a_path_or_an_option_is_refused(world: World, machine_id: str) -> None:
    """An id becomes part of a path or a tag, so it is checked before anything is looked up."""
    with pytest.raises(BadRequestError):
        world.open_provider().destroy(machine_id)
