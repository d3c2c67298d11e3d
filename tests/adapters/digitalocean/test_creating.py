"""A creation that is accepted (202) and fails afterwards: its droplet is deleted, and the next offer is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import NoCapacityError, StillBillingError
from orchestrator.core.job import AtEnd, Resources
from orchestrator.core.machine import MachineState
from tests.adapters.digitalocean.world import GPU, M1, RUN, DoWorld, volume

DROPLETS = "/v2/droplets"


@pytest.mark.parametrize("vanishes", [False, True], ids=["stays new", "vanishes"])
def test_a_creation_that_ends_errored_leaves_nothing_and_the_next_offer_is_tried(do: DoWorld, vanishes: bool) -> None:
    """It counts as a lack of capacity for this offer only. Two droplets never bill at the same time.

    fact: do-creation-errored
    """
    do.api.settings.activation_seconds = 40
    do.api.faults.give_up_next(20, vanishes=vanishes)
    (offer, *_) = do.provider().offers(_resources())
    with pytest.raises(NoCapacityError, match="failed to create") as caught:
        do.provider().create(do.order())
    assert "errored" in caught.value.why
    assert not caught.value.covers(replace(offer, region="nyc2"))
    assert do.api.droplets() == []
    assert list(do.provider().machines()) == []
    machine = do.provider().create(do.order(region="nyc2"))
    ready = do.provider().describe(M1)
    assert ready is not None
    assert ready.state is MachineState.READY
    (droplet,) = do.api.droplets()
    assert (str(droplet.id), droplet.region) == (machine.provider_id, "nyc2")
    failed, stays = (bill for bill in do.api.meter.bills() if bill.kind == "droplet")
    assert failed.until is not None
    assert failed.until <= stays.since


def test_a_droplet_that_vanishes_with_its_action_is_a_failed_creation(do: DoWorld) -> None:
    """GPU droplets that cannot be placed may vanish before the first look-up; later they answer 404."""
    do.api.settings.activation_seconds = 40
    do.api.faults.give_up_next(5, vanishes=True)
    do.api.faults.fail_next("GET", "/v2/actions/*", status=404, times=None)
    with pytest.raises(NoCapacityError, match="failed to create"):
        do.provider().create(do.order())
    assert list(do.provider().machines()) == []


def test_volumes_of_a_failed_creation_are_deleted_with_it(do: DoWorld) -> None:
    """The next offer may be in another region, where they could not be attached."""
    do.api.faults.give_up_next(20)
    with pytest.raises(NoCapacityError):
        do.provider().create(do.order(volumes=(volume(at_end=AtEnd.KEEP),)))
    assert do.api.meter.billing() == []


def test_a_creation_whose_answer_was_lost_is_still_checked(do: DoWorld) -> None:
    """The action's id was in the lost answer; the droplet's list of actions has it too."""
    do.api.settings.not_found_seconds = 15
    do.api.faults.drop_next("POST", DROPLETS)
    first = do.provider().create(do.order())
    assert first.state is MachineState.READY
    (droplet,) = do.api.droplets()
    # From here on the creation has failed; the next command deletes the droplet.
    droplet.active_at = do.api.cloud.clock.now() + 10**6
    for action in do.api.cloud.account.actions.values():
        action.fails = True
    droplet.errored_at = do.api.cloud.clock.now()
    with pytest.raises(NoCapacityError):
        do.provider().create(do.order())
    assert do.api.droplets() == []


def test_no_second_droplet_is_created_while_a_failed_one_cannot_be_deleted(do: DoWorld) -> None:
    """The failed one bills until somebody deletes it."""
    do.api.faults.give_up_next(5)
    do.api.faults.fail_next("DELETE", "/v2/droplets/{droplet_id}", status=500, times=None)
    with pytest.raises(StillBillingError, match=M1):
        do.provider().create(do.order())
    assert len(do.api.droplets()) == 1
    do.api.faults.clear()
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None


def test_a_token_that_may_not_read_actions_is_enough(do: DoWorld) -> None:
    """Without access to the action, kedge does not delete the machine."""
    do.api.faults.fail_next("GET", "/v2/actions/*", status=403, times=None)
    assert do.provider().create(do.order()).state is MachineState.READY
    do.provider().destroy(M1)
    do.provider().release(RUN)


def _resources() -> Resources:
    return Resources(instance_type=GPU, regions=("tor1",))
