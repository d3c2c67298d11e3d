"""A namesake is another instance with the same machine's mark: a copy, an earlier one, or one with edited marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.lifecycle.creation import create_instance
from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.machine import Machine, MachineOrder, MachineState
from tests.adapters.cloud.faults import CLOUDS
from tests.adapters.cloud.life import M1, RUN, World, create, is_complete, order
from tests.support.fake_cloud.account import MARK_CLOUD, TOKEN_CLOUD, FakeCloud
from tests.support.fake_cloud.command import fake_provider
from tests.support.orders import make_offer

EVERY_CLOUD = pytest.mark.parametrize("cloud", CLOUDS)
LOST = [("send", "lost")] * 40


def provider(world: World) -> CloudProvider:
    return fake_provider(world.cloud, world.records, world.claims)


def with_an_ended_namesake(cloud: str, tmp_path: Path, lag: int = 0) -> World:
    """Make an account whose first instance of the machine has ended, and is still listed."""
    world = World(FakeCloud(CLOUDS[cloud], keeps_gone=True, ending=timedelta(seconds=1)), tmp_path)
    create(world)
    world.cloud.end(world.cloud.instances[0])
    world.cloud.clock.sleep(timedelta(seconds=5))
    world.cloud.lag = timedelta(seconds=lag)
    return world


@EVERY_CLOUD
def test_an_ended_namesake_does_not_settle_an_unclear_request(cloud: str, tmp_path: Path) -> None:
    """The next request may have created another instance. Until that is clear, the run gets no machine."""
    world = with_an_ended_namesake(cloud, tmp_path)
    world.cloud.faults += [("send", "very late"), *LOST]
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    world.cloud.faults.clear()
    first = order(world.cloud.traits)
    others: Sequence[MachineOrder] = (
        first,
        replace(first, id=f"{RUN}-m2"),
        replace(first, offer=make_offer(cloud, "other", "here")),
    )
    for each in others:
        with pytest.raises(StillBillingError, match="may have been created"):
            create_instance(world.context(), each)
    world.cloud.clock.sleep(timedelta(minutes=6))
    is_complete(world, create(world))
    assert [each.id for each in world.cloud.billing()] == ["i-0002"]


@EVERY_CLOUD
@pytest.mark.parametrize("unmarked", [False, True])
def test_a_young_machine_is_seen_beside_its_ended_namesake(cloud: str, unmarked: bool, tmp_path: Path) -> None:
    """The cloud does not list it by its mark yet, and lists the ended one."""
    world = with_an_ended_namesake(cloud, tmp_path, lag=0 if unmarked else 3)
    made = create(world)
    assert made.id == "i-0002"
    world.cloud.instances[1].marked = not unmarked
    described = provider(world).describe(M1)
    assert described is not None
    assert described.provider_id == made.id
    (listed,) = provider(world).machines()
    assert listed == described
    provider(world).guard(M1)
    assert world.cloud.guards.get(M1, (made.id,))[0] == made.id
    with pytest.raises(StillBillingError, match=M1):
        provider(world).release(RUN)
    world.cloud.clock.sleep(world.cloud.lag)
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=5))
    assert world.cloud.billing() == []


def test_a_machine_of_an_unclear_request_is_released_once_it_has_ended(tmp_path: Path) -> None:
    """Its request stayed unclear, and it was listed later. This command is the first to see it."""
    world = World(FakeCloud(TOKEN_CLOUD, faults=[("send", "very late"), *LOST]), tmp_path)
    with pytest.raises(StillBillingError):
        create(world)
    world.cloud.clock.sleep(timedelta(minutes=5))
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=10))
    assert provider(world).describe(M1) is None
    assert provider(world).machines() == []
    provider(world).release(RUN)
    assert world.records == {}


@EVERY_CLOUD
def test_edited_marks_do_not_change_a_machine_whose_id_is_recorded(cloud: str, tmp_path: Path) -> None:
    """Anybody in the account can edit marks. Request, deadline and price are read from the record."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    before, guards = seen(world), dict(world.cloud.guards)
    world.cloud.instances[0].edited = {"attempt": "edited", "lifetime": timedelta(days=365)}
    assert seen(world) == before
    assert before.address is not None
    provider(world).guard(M1)
    assert world.cloud.guards == guards
    assert provider(world).create(order(world.cloud.traits)) == before
    assert len(world.cloud.instances) == 1


def seen(world: World) -> Machine:
    described = provider(world).describe(M1)
    (listed,) = provider(world).machines()
    assert described == listed
    return listed


def test_the_end_of_a_namesake_does_not_settle_an_unclear_request(tmp_path: Path) -> None:
    """Another computer's instance is deleted. What this one requested may still appear, and keeps its record."""
    world = World(FakeCloud(MARK_CLOUD, faults=[("send", "very late")]), tmp_path)
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    create_instance(world.elsewhere(), order(MARK_CLOUD))
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=10))
    assert provider(world).describe(M1) is not None
    with pytest.raises(StillBillingError, match=M1):
        provider(world).release(RUN)
    world.cloud.clock.sleep(timedelta(minutes=6))
    provider(world).destroy(M1)
    assert world.cloud.billing() == []
    provider(world).release(RUN)
    assert world.records == {}


def test_after_a_deletion_without_effect_the_machine_is_shown_as_running(tmp_path: Path) -> None:
    """The cloud refuses to delete an instance that is too new, and keeps running it."""
    world = World(FakeCloud(MARK_CLOUD), tmp_path)
    create(world)
    world.cloud.too_new = timedelta(hours=1)
    with pytest.raises(StillBillingError, match="may still be billing"):
        provider(world).destroy(M1)
    assert seen(world).state is MachineState.READY


def test_an_adopted_namesake_does_not_settle_an_unclear_request(tmp_path: Path) -> None:
    """Another computer's instance is used instead. What this one requested appears later, is found, and is ended."""
    world = World(FakeCloud(TOKEN_CLOUD), tmp_path)
    first = order(world.cloud.traits)
    theirs = create_instance(world.elsewhere(), replace(first, offer=make_offer("token", "other", "here")))
    world.cloud.clock.sleep(timedelta(seconds=7))
    world.cloud.faults += [("send", "very late"), *LOST]
    assert create(world).id == theirs.id
    world.cloud.faults.clear()
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=10))
    with pytest.raises(StillBillingError, match=M1):
        provider(world).release(RUN)
    world.cloud.clock.sleep(timedelta(minutes=6))
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=10))
    assert world.cloud.billing() == []


def test_an_ending_namesake_is_not_taken_for_an_unclear_request(tmp_path: Path) -> None:
    """It cannot be used, and the instance of the request may still appear."""
    world = World(FakeCloud(TOKEN_CLOUD, ending=timedelta(hours=1)), tmp_path)
    first = order(world.cloud.traits)
    create_instance(world.elsewhere(), replace(first, offer=make_offer("token", "other", "here")))
    world.cloud.end(world.cloud.instances[0])
    world.cloud.clock.sleep(timedelta(seconds=7))
    world.cloud.faults += [("send", "very late"), *LOST]
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    assert M1 in world.records


@EVERY_CLOUD
def test_an_instance_that_cannot_be_deleted_does_not_prevent_the_deletion_of_another(
    cloud: str, tmp_path: Path
) -> None:
    """Two instances have the machine's mark, and one is protected. The error says so; the other is deleted."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    world.cloud.make(world.cloud.instances[0].draft)
    world.cloud.faults.append(("delete", "error"))
    with pytest.raises(KedgeError, match="delete doesn't work"):
        provider(world).destroy(M1)
    assert [each.id for each in world.cloud.living()] == ["i-0001"]
    # Only its guard is left to end it.
    assert world.cloud.guards.get(M1, ("i-0001",))[0] == "i-0001"


def test_an_address_is_released_even_if_a_deletion_fails(tmp_path: Path) -> None:
    """Once the instance is gone, no listing connects the address with it."""
    world = World(FakeCloud(MARK_CLOUD, reserved={"i-0001": "192.0.2.9"}), tmp_path)
    create(world)
    world.cloud.faults.append(("delete", "drop"))
    with pytest.raises(KedgeError, match="delete doesn't work"):
        provider(world).destroy(M1)
    assert world.cloud.reserved == {}


def test_an_address_that_stays_is_named_in_the_error_of_the_failed_deletion(tmp_path: Path) -> None:
    """Later nobody could tell which instance it belonged to."""
    world = World(FakeCloud(MARK_CLOUD, reserved={"i-0001": "192.0.2.9"}), tmp_path)
    create(world)
    world.cloud.faults.append(("delete", "error"))
    with pytest.raises(StillBillingError, match="may still be billing") as caught:
        provider(world).destroy(M1)
    assert "delete doesn't work" in caught.value.why
    assert "192.0.2.9" in caught.value.why


@EVERY_CLOUD
def test_a_copy_of_an_instance_does_not_replace_it(cloud: str, tmp_path: Path) -> None:
    """The console's "launch more like this" copies the marks too. The recorded id tells which one is the machine."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    made = create(world)
    before, guards = seen(world), dict(world.cloud.guards)
    world.cloud.make(world.cloud.instances[0].draft)
    world.cloud.instances.reverse()
    described = provider(world).describe(M1)
    assert described == before
    provider(world).guard(M1)
    assert world.cloud.guards == guards
    record = world.context().records.machine(M1)
    assert record is not None
    assert record.provider_id == made.id
    provider(world).destroy(M1)
    world.cloud.clock.sleep(timedelta(seconds=10))
    assert world.cloud.billing() == []


@EVERY_CLOUD
def test_a_machine_whose_mark_names_another_is_not_ended_with_it(cloud: str, tmp_path: Path) -> None:
    """Somebody edited the mark; the recorded id tells which machine it is."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    second = create_instance(world.context(), replace(order(world.cloud.traits), id=f"{RUN}-m2"))
    world.cloud.instances[1].edited = {"machine_id": M1}
    provider(world).destroy(M1)
    assert [each.id for each in world.cloud.living()] == [second.id]


@EVERY_CLOUD
def test_a_stop_and_a_start_do_not_change_the_deadline(cloud: str, tmp_path: Path) -> None:
    """Some clouds report the last start as the creation time."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    before, guards = seen(world), dict(world.cloud.guards)
    world.cloud.instances[0].edited = {"created_at": before.created_at + timedelta(hours=5)}
    assert seen(world).deadline_at == before.deadline_at
    provider(world).guard(M1)
    assert world.cloud.guards == guards
