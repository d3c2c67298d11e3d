"""A creation that was accepted (202) and fails afterwards: its droplet is ended, and the next offer is tried."""

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
    """It is a lack of capacity of this offer alone; at no time do two droplets bill.

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


def test_a_droplet_that_is_removed_with_its_action_is_a_creation_that_failed(do: DoWorld) -> None:
    """GPU droplets that can't be placed have vanished before anybody could look; 404 says so after a while."""
    do.api.settings.activation_seconds = 40
    do.api.faults.give_up_next(5, vanishes=True)
    do.api.faults.fail_next("GET", "/v2/actions/*", status=404, times=None)
    with pytest.raises(NoCapacityError, match="failed to create"):
        do.provider().create(do.order())
    assert list(do.provider().machines()) == []


def test_volumes_that_were_made_for_it_go_with_it(do: DoWorld) -> None:
    """The next offer may be in another region, where they could not be attached."""
    do.api.faults.give_up_next(20)
    with pytest.raises(NoCapacityError):
        do.provider().create(do.order(volumes=(volume(at_end=AtEnd.KEEP),)))
    assert do.api.meter.billing() == []


def test_a_creation_whose_answer_was_lost_is_looked_at_all_the_same(do: DoWorld) -> None:
    """Nobody has read its action's id: the droplet's own list has it."""
    do.api.settings.not_found_seconds = 15
    do.api.faults.drop_next("POST", DROPLETS)
    first = do.provider().create(do.order())
    assert first.state is MachineState.READY
    (droplet,) = do.api.droplets()
    # As if it had failed after all: the next command that looks ends it.
    droplet.active_at = do.api.cloud.clock.now() + 10**6
    for action in do.api.cloud.account.actions.values():
        action.fails = True
    droplet.errored_at = do.api.cloud.clock.now()
    with pytest.raises(NoCapacityError):
        do.provider().create(do.order())
    assert do.api.droplets() == []


def test_a_droplet_that_cannot_be_ended_again_is_no_reason_for_another(do: DoWorld) -> None:
    """Its creation failed, and it stays: it bills until somebody ends it, and no second one is made."""
    do.api.faults.give_up_next(5)
    do.api.faults.fail_next("DELETE", "/v2/droplets/{droplet_id}", status=500, times=None)
    with pytest.raises(StillBillingError, match=M1):
        do.provider().create(do.order())
    assert len(do.api.droplets()) == 1
    do.api.faults.clear()
    do.provider().destroy(M1)
    assert do.provider().describe(M1) is None


def test_a_token_that_may_not_read_actions_is_enough(do: DoWorld) -> None:
    """What can't be looked at ends no machine."""
    do.api.faults.fail_next("GET", "/v2/actions/*", status=403, times=None)
    assert do.provider().create(do.order()).state is MachineState.READY
    do.provider().destroy(M1)
    do.provider().release(RUN)


def _resources() -> Resources:
    return Resources(instance_type=GPU, regions=("tor1",))
