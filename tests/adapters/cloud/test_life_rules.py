"""Rules of a machine's life that hold at any cloud, case by case."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.lifecycle.creation import create_instance
from orchestrator.adapters.cloud.lifecycle.deletion import delete_machine
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError, NoCapacityError, StillBillingError
from tests.adapters.cloud.faults import CLOUDS
from tests.adapters.cloud.life import M1, World, create, is_complete, order, tear_down
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.account import MARK_CLOUD, TOKEN_CLOUD, FakeCloud
from tests.support.fake_cloud.command import fake_provider
from tests.support.fake_cloud.process import KilledError, interrupted_at, killed_at
from tests.support.orders import make_offer

EVERY_CLOUD = pytest.mark.parametrize("cloud", CLOUDS)


@EVERY_CLOUD
def test_a_machine_without_marks_is_found_by_its_id(cloud: str, tmp_path: Path) -> None:
    """Anybody in the account can remove the marks; the machine keeps running and billing."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    made = create(world)
    world.cloud.instances[0].marked = False
    again = create(world)
    assert (again.id, again.machine_id, again.run_id) == (made.id, made.machine_id, made.run_id)
    tear_down(world.context(), world)
    assert world.cloud.billing() == []


@EVERY_CLOUD
@pytest.mark.parametrize("account", ["5678", ""])
def test_credentials_of_another_account_neither_create_nor_destroy(cloud: str, account: str, tmp_path: Path) -> None:
    """In that account the machine would seem to be gone. The same holds if the cloud does not name the account."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    mine, world.cloud.instances = world.cloud.instances, []
    world.cloud.account = account
    with pytest.raises(BadRequestError, match="another account"):
        create(world)
    with pytest.raises(BadRequestError, match="another account"):
        delete_machine(world.context(), M1)
    assert len(mine) == 1
    assert world.cloud.instances == []


@EVERY_CLOUD
def test_a_request_is_repeated_until_the_cloud_knows_its_new_key(cloud: str, tmp_path: Path) -> None:
    """The key is not known everywhere in the cloud yet."""
    world = World(FakeCloud(CLOUDS[cloud], key_lag=timedelta(seconds=20)), tmp_path)
    is_complete(world, create(world))
    assert len(world.cloud.sent) > 1
    assert all(draft == world.cloud.sent[0] for draft in world.cloud.sent)


@EVERY_CLOUD
def test_a_deleted_key_is_created_again_and_named_in_a_new_request(cloud: str, tmp_path: Path) -> None:
    """Somebody deleted it; the record still has it."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    world.cloud.keys["digits-1"] = world.cloud.clock.now()
    world.cloud.faults.append(("send", "NOT_YET"))
    is_complete(world, create(world))
    first, second = world.cloud.sent
    assert first.marks.attempt != second.marks.attempt or first.user_data != second.user_data


@EVERY_CLOUD
def test_a_key_that_never_becomes_known_is_given_up_after_a_minute(cloud: str, tmp_path: Path) -> None:
    """Nothing was created, and the machine's record is deleted."""
    world = World(FakeCloud(CLOUDS[cloud], key_lag=timedelta(hours=1)), tmp_path)
    begun = world.cloud.clock.now()
    with pytest.raises(KedgeError, match="can't be created"):
        create(world)
    assert timedelta(seconds=55) <= world.cloud.clock.now() - begun <= timedelta(seconds=75)
    assert world.records == {}


class Fatal(FakeClock):
    """A clock whose sleep kills the command."""

    def sleep(self, duration: timedelta) -> None:
        raise KilledError(duration)


@EVERY_CLOUD
def test_a_command_that_dies_after_a_refusal_leaves_nothing_unclear(cloud: str, tmp_path: Path) -> None:
    """It died before its retry. Nothing was created, and the next command can create at once."""
    world = World(FakeCloud(CLOUDS[cloud], key_lag=timedelta(seconds=20), clock=Fatal()), tmp_path)
    with pytest.raises(KilledError):
        create(world)
    assert len(world.cloud.sent) == 1
    assert world.records == {}


@EVERY_CLOUD
@pytest.mark.parametrize("call", ["choose", "ensure"])
def test_a_place_that_turns_out_to_be_closed_is_skipped(cloud: str, call: str, tmp_path: Path) -> None:
    """Whichever call is denied first, the refusal rules out all offers there, and no others."""
    world = World(FakeCloud(CLOUDS[cloud], faults=[(call, "closed")]), tmp_path)
    with pytest.raises(NoCapacityError, match=f"{call} doesn't work") as caught:
        create(world)
    assert caught.value.covers(make_offer(cloud, "small", "here"))
    assert not caught.value.covers(make_offer(cloud, "large", "there"))
    is_complete(world, create(world))


def test_an_instance_that_can_be_neither_guarded_nor_ended_may_be_billing(tmp_path: Path) -> None:
    """The cloud does not find the instance that it has just created, and keeps running it."""
    faults = [("arm", "error"), *[("deletion", "unknown")] * 100]
    world = World(FakeCloud(TOKEN_CLOUD, faults=faults), tmp_path)
    with pytest.raises(StillBillingError, match="may still be billing") as caught:
        create(world)
    assert caught.value.why == (
        "arm doesn't work: the cloud doesn't answer; "
        "then: the token cloud doesn't know instance i-0001, 2 minutes after its creation"
    )


def test_a_token_depends_on_the_instances_that_have_ended(tmp_path: Path) -> None:
    """For the same token, the cloud would return the instance that is ending."""
    world = World(FakeCloud(TOKEN_CLOUD, ending=timedelta(minutes=10)), tmp_path)
    first = create(world)
    delete_machine(world.context(), M1)
    second = create(world)
    assert second.id != first.id
    assert [each.id for each in world.cloud.living()] == [second.id]


def test_an_unclear_request_is_repeated_with_its_token(tmp_path: Path) -> None:
    """Three answers are lost, and there is one instance; kedge does not have to search for it."""
    world = World(FakeCloud(TOKEN_CLOUD, faults=[("send", "drop")] * 3), tmp_path)
    is_complete(world, create(world))
    assert len(world.cloud.sent) == 4
    assert len(world.cloud.instances) == 1


@pytest.mark.parametrize("then", ["unsent", "STOP", "NOT_YET", "RETRY", "NEXT_REGION"])
def test_an_instance_that_may_exist_is_looked_for_whatever_the_retry_returns(then: str, tmp_path: Path) -> None:
    """The answer was lost, and the retry fails before it could tell what the first request did."""
    faults = [("send", "drop"), *[("send", then)] * 1000]
    world = World(FakeCloud(TOKEN_CLOUD, faults=faults), tmp_path)
    made = create(world)
    is_complete(world, made)
    assert world.cloud.guards[M1][0] == made.id
    record = world.context().records.machine(M1)
    assert record is not None
    assert (record.provider_id, record.unclear_since) == (made.id, None)


@pytest.mark.parametrize("then", ["unsent", "STOP", "NOT_YET", "RETRY", "NEXT_REGION"])
def test_an_instance_that_may_appear_late_counts_as_billing_whatever_the_retry_returns(
    then: str, tmp_path: Path
) -> None:
    """The first request is still under way; its record keeps the machine's host key."""
    faults = [("send", "very late"), *[("send", then)] * 1000]
    world = World(FakeCloud(TOKEN_CLOUD, faults=faults), tmp_path)
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    world.cloud.faults.clear()
    world.cloud.clock.sleep(timedelta(minutes=5))
    is_complete(world, create(world))
    assert world.cloud.most_at_once == 1


def test_a_refusal_of_the_request_itself_makes_it_clear_again(tmp_path: Path) -> None:
    """The cloud has judged this very request and lacks capacity, so the next offer can be tried."""
    world = World(FakeCloud(TOKEN_CLOUD, faults=[("send", "lost"), ("send", "NEXT_POOL")]), tmp_path)
    with pytest.raises(NoCapacityError):
        create(world)
    assert world.records == {}


def test_an_unclear_request_without_a_token_is_never_repeated(tmp_path: Path) -> None:
    """Its instance is found by its mark as soon as it is listed."""
    world = World(FakeCloud(MARK_CLOUD, lag=timedelta(seconds=60), faults=[("send", "drop")]), tmp_path)
    is_complete(world, create(world))
    assert len(world.cloud.sent) == 1


@EVERY_CLOUD
def test_no_machine_is_created_while_another_of_the_run_is_unclear(cloud: str, tmp_path: Path) -> None:
    """This lasts 15 minutes."""
    lost = [("send", "lost")] * 20
    world = World(FakeCloud(CLOUDS[cloud], faults=list(lost)), tmp_path)
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    world.cloud.faults.clear()
    with pytest.raises(StillBillingError, match="may have been created"):
        create(world)
    world.cloud.clock.sleep(timedelta(minutes=16))
    is_complete(world, create(world))


def test_two_commands_of_one_computer_do_not_create_at_once(tmp_path: Path) -> None:
    """Each would overwrite the host key that the other recorded."""
    world = World(FakeCloud(MARK_CLOUD), tmp_path)
    refused = []

    def meanwhile() -> None:
        with pytest.raises(ConflictError) as caught:
            create(world)
        refused.append(caught.value)

    is_complete(world, create_instance(world.context(interrupted_at(8, meanwhile)), order(MARK_CLOUD)))
    assert len(refused) == 1


def test_a_deletion_without_effect_is_repeated(tmp_path: Path) -> None:
    """An instance may be too new to be deleted."""
    world = World(FakeCloud(MARK_CLOUD, too_new=timedelta(minutes=1)), tmp_path)
    create(world)
    delete_machine(world.context(), M1)
    assert world.cloud.billing() == []


def test_an_instance_that_is_still_listed_after_its_deletion_may_be_billing(tmp_path: Path) -> None:
    """Its deletion was accepted, and had no effect for minutes."""
    world = World(FakeCloud(MARK_CLOUD, ending=timedelta(hours=1)), tmp_path)
    create(world)
    with pytest.raises(StillBillingError, match="may still be billing"):
        delete_machine(world.context(), M1)


@pytest.mark.parametrize("fault", ["errored", "vanishes"])
def test_a_creation_that_fails_after_its_answer_counts_as_no_capacity(fault: str, tmp_path: Path) -> None:
    """The next offer can be tried; the error has the cloud's reason."""
    world = World(FakeCloud(MARK_CLOUD, faults=[("send", fault)]), tmp_path)
    with pytest.raises(NoCapacityError, match="failed to create large in here") as caught:
        create(world)
    assert "errored" in caught.value.why
    assert world.cloud.billing() == []


def test_a_guard_stays_if_the_cloud_lists_an_instance_that_it_cannot_delete(tmp_path: Path) -> None:
    """The cloud keeps running it, and only the guard is left to end it."""
    world = World(FakeCloud(TOKEN_CLOUD, faults=[("deletion", "unknown")]), tmp_path)
    made = create(world)
    delete_machine(world.context(), M1)
    assert world.cloud.guards[M1][0] == made.id
    delete_machine(world.context(), M1)
    assert world.cloud.guards == {}


@EVERY_CLOUD
def test_a_killed_command_leaves_the_record_before_its_request(cloud: str, tmp_path: Path) -> None:
    """Each request that was sent has a record, with the machine's host key."""
    for point in range(1000):
        world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
        try:
            create(world, killed_at(point))
        except KilledError:
            sent = [draft.marks.attempt for draft in world.cloud.sent]
            record = world.context().records.machine(M1)
            assert not sent or (record is not None and sent == [record.attempt])
        else:
            break


@EVERY_CLOUD
def test_a_machine_s_age_counts_from_its_answer_and_not_from_its_request(cloud: str, tmp_path: Path) -> None:
    """Waiting for a new key took most of a minute. A machine that is not listed 40 s after its answer is not gone."""
    slow = FakeCloud(CLOUDS[cloud], key_lag=timedelta(seconds=55), lag=timedelta(seconds=80))
    world = World(slow, tmp_path)
    made = create(world)
    slow.clock.sleep(timedelta(seconds=40))
    provider = fake_provider(slow, world.records, tmp_path)
    seen = provider.describe(M1)
    assert seen is not None
    assert seen.provider_id == made.id


def test_a_machine_that_is_not_listed_yet_keeps_its_guard(tmp_path: Path) -> None:
    """Its deletion is requested by the recorded id, which the cloud does not know yet. Only the guard can end it."""
    world = World(FakeCloud(TOKEN_CLOUD, lag=timedelta(seconds=60)), tmp_path)
    made = create(world)
    world.cloud.faults.append(("delete", "error"))
    with pytest.raises(KedgeError, match="delete doesn't work"):
        delete_machine(world.context(), M1)
    delete_machine(world.context(), M1)
    assert world.cloud.guards[M1][0] == made.id


def test_an_unclear_machine_is_reported_with_the_listing_that_failed(tmp_path: Path) -> None:
    """The user can fix the cause of that failure, such as credentials that have expired."""
    world = World(FakeCloud(TOKEN_CLOUD, faults=[*[("send", "lost")] * 40, ("list", "error")]), tmp_path)
    with pytest.raises(StillBillingError, match="may have been created") as caught:
        create(world)
    assert "list doesn't work: the cloud doesn't answer" in caught.value.why
