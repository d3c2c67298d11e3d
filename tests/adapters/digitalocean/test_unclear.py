"""A request for a droplet that breaks anywhere creates at most one droplet, and the next command knows about it."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.core.errors import ConflictError, KedgeError, StillBillingError
from orchestrator.core.machine import MachineState
from tests.adapters.digitalocean.doomed import doomed_commands
from tests.adapters.digitalocean.world import GPU, M1, PLAIN, RUN, DoWorld, volume
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.box_time import BoxTime

DROPLETS = "/v2/droplets"


@pytest.mark.parametrize("size", [GPU, PLAIN])
@pytest.mark.parametrize("lag", [0, 45])
def test_a_droplet_whose_answer_was_lost_is_found_by_its_tag(do: DoWorld, size: str, lag: int) -> None:
    """In either listing, even if the API lists it late. Its host key is known."""
    do.api.settings.unlisted_seconds = do.api.settings.not_found_seconds = lag
    do.api.faults.drop_next("POST", DROPLETS)
    machine = do.provider().create(do.order(instance_type=size))
    (droplet,) = do.api.droplets()
    assert machine.provider_id == str(droplet.id)
    assert machine.address is not None
    assert do.posts() == 1


def test_a_droplet_is_found_after_an_error_that_followed_the_effect(do: DoWorld) -> None:
    """A 500 does not say whether there is a droplet; its tag does."""
    do.api.faults.fail_next("POST", DROPLETS, status=500, after_effect=True)
    machine = do.provider().create(do.order())
    assert [str(each.id) for each in do.api.droplets()] == [machine.provider_id]


def test_a_request_without_answer_and_without_droplet_counts_as_billing(do: DoWorld) -> None:
    """It counts as an unclear machine for 15 minutes, and then as none."""
    do.api.faults.drop_next("POST", DROPLETS, after_effect=False)
    with pytest.raises(StillBillingError, match=M1):
        do.provider().create(do.order())
    ended = do.clock.now()
    (machine,) = do.provider().machines()
    assert (machine.id, machine.state) == (M1, MachineState.UNKNOWN)
    assert do.provider().describe(M1) == machine
    do.clock.sleep(timedelta(minutes=16) - (do.clock.now() - ended))
    assert list(do.provider().machines()) == []
    assert do.provider().describe(M1) is None


def test_no_machine_is_created_while_another_of_the_run_is_unclear(do: DoWorld) -> None:
    """Neither the same machine again nor the run's next. Another run can create machines."""
    do.api.faults.drop_next("POST", DROPLETS, after_effect=False)
    with pytest.raises(StillBillingError):
        do.provider().create(do.order())
    for order in (do.order(), do.order(2), do.order(region="nyc2")):
        with pytest.raises(StillBillingError, match=M1):
            do.provider().create(order)
    assert do.posts() == 1
    do.provider().create(do.order(id="next-1-m1", run_id="next-1"))
    do.clock.sleep(timedelta(minutes=16))
    do.provider().create(do.order())
    assert len(do.api.droplets()) == 2


def test_a_droplet_that_appears_late_is_the_machine(do: DoWorld) -> None:
    """It is listed only after the command gave up, and is then recognised."""
    do.api.settings.unlisted_seconds = do.api.settings.not_found_seconds = 200
    do.api.faults.drop_next("POST", DROPLETS)
    with pytest.raises(StillBillingError):
        do.provider().create(do.order())
    do.api.advance(200)
    machine = do.provider().create(do.order())
    assert [str(each.id) for each in do.api.droplets()] == [machine.provider_id]
    assert machine.address is not None


def test_a_run_with_an_unclear_machine_is_not_released(do: DoWorld) -> None:
    """Its firewall may have a droplet to protect."""
    do.api.faults.drop_next("POST", DROPLETS, after_effect=False)
    order = do.order()
    with pytest.raises(StillBillingError):
        do.provider().create(order)
    with pytest.raises(StillBillingError) as caught:
        do.provider().release(order.run_id)
    assert M1 in caught.value.why


def test_a_command_killed_before_the_answer_leaves_all_that_the_next_one_needs(do: DoWorld) -> None:
    """The next command finds the droplet, knows its host key, and creates no other."""
    with doomed_commands() as doomed:
        do.api.faults.delay_next("POST", DROPLETS, 0.5, after_effect=True)
        doomed.create_and_die(do)
    machine = do.provider().create(do.order())
    assert machine.address is not None
    assert do.posts() == 1
    assert len(do.api.droplets()) == 1


def test_a_command_killed_before_the_effect_leaves_an_unclear_machine(do: DoWorld) -> None:
    """The droplet may still appear. Later the machine can be created."""
    with doomed_commands() as doomed:
        do.api.faults.drop_next("POST", DROPLETS, after_effect=False)
        doomed.create_and_die(do)
    (machine,) = do.provider().machines()
    assert machine.state is MachineState.UNKNOWN
    with pytest.raises(StillBillingError):
        do.provider().create(do.order())
    do.clock.sleep(timedelta(minutes=16))
    do.provider().create(do.order())
    assert len(do.api.droplets()) == 1


class Died(BaseException):
    """The command died."""


class KillingClock(BoxTime):
    """The box's clock, for a command that dies in its first wait after a droplet was created."""

    def __init__(self, api: DigitalOceanBox) -> None:
        super().__init__(api)
        self._api = api

    def sleep(self, duration: timedelta) -> None:
        if self._api.droplets():
            raise Died
        super().sleep(duration)


def leave_young_droplet(do: DoWorld, *, hidden_for: float) -> None:
    """Run a command that creates a droplet two minutes after its first request, and dies before the API lists it."""
    do.api.settings.unlisted_seconds = do.api.settings.not_found_seconds = hidden_for
    do.api.faults.fail_next("POST", DROPLETS, status=429, retry_after=120)
    with pytest.raises(Died):
        replace(do, clock=KillingClock(do.api)).provider().create(do.order())


def test_a_droplet_s_age_counts_from_the_answer_of_a_slow_creation(do: DoWorld) -> None:
    """The retries took longer than the API takes to list a droplet. The machine still counts, and can be deleted."""
    leave_young_droplet(do, hidden_for=60)
    (machine,) = do.provider().machines()
    assert (machine.id, machine.state) == (M1, MachineState.BOOTING)
    do.provider().destroy(M1)
    assert do.api.droplets() == []


def test_a_slow_creation_creates_one_droplet(do: DoWorld) -> None:
    """The repeated command waits until it is listed, and requests no other."""
    leave_young_droplet(do, hidden_for=60)
    asked = do.posts()
    do.provider().create(do.order())
    assert (do.posts(), len(do.api.droplets())) == (asked, 1)


def test_a_droplet_that_is_listed_far_too_late_is_found_by_its_id(do: DoWorld) -> None:
    """It counts as a machine, is created once, and can be destroyed."""
    leave_young_droplet(do, hidden_for=60)
    do.api.settings.unlisted_seconds = 3600
    do.api.advance(300)
    assert [machine.id for machine in do.provider().machines()] == [M1]
    asked = do.posts()
    do.provider().create(do.order())
    assert do.posts() == asked
    with pytest.raises(StillBillingError):
        do.provider().release(RUN)
    do.provider().destroy(M1)
    assert do.api.droplets() == []


def both(*worlds: DoWorld) -> list[KedgeError]:
    """Run several commands that create the same machine at once; return their errors."""
    failures: list[KedgeError] = []

    def create(world: DoWorld) -> None:
        try:
            world.provider().create(world.order())
        except KedgeError as err:
            failures.append(err)

    racers = [threading.Thread(target=create, args=[world]) for world in worlds]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return failures


def test_two_commands_of_one_computer_cannot_create_the_same_machine(do: DoWorld) -> None:
    """One would overwrite the host key that the other recorded. The second is refused while the first runs."""
    do.api.faults.delay_next("POST", DROPLETS, 0.3)
    failures = both(do, do)
    assert all(isinstance(failure, ConflictError) for failure in failures)
    assert len(do.api.droplets()) == 1
    seen = do.provider().describe(M1)
    assert seen is not None
    assert seen.address is not None


@pytest.mark.parametrize("lag", [0, 45])
def test_of_two_computers_that_create_the_same_machine_the_first_keeps_it(do: DoWorld, lag: int) -> None:
    """Each finds the other's droplet by its tag, and the younger one is deleted by whichever looks first."""
    do.api.settings.unlisted_seconds = lag
    do.api.faults.delay_next("POST", DROPLETS, 0.3, times=2)
    assert both(do, do.other_laptop()) == []
    (droplet,) = do.api.droplets()
    seen = [world.provider().describe(M1) for world in (do, do.other_laptop())]
    assert {machine.provider_id for machine in seen if machine} == {str(droplet.id)}
    assert sum(machine is not None and machine.address is not None for machine in seen) == 1


def test_a_duplicate_that_was_missed_is_deleted_when_the_machine_is_guarded(do: DoWorld) -> None:
    """The older droplet is the machine; the other one would bill for nothing."""
    first = do.provider().create(do.order())
    (droplet,) = do.api.droplets()
    body = {"name": "twin", "region": "tor1", "size": GPU, "image": "gpu-amd-base", "tags": droplet.tags}
    do.api.client().droplets.create(body)
    assert [machine.provider_id for machine in do.provider().machines()] == [first.provider_id]
    do.provider().guard(M1)
    assert [str(each.id) for each in do.api.droplets()] == [first.provider_id]


def test_a_machine_that_cannot_be_completed_is_ended_again(do: DoWorld) -> None:
    """Nobody would know that the droplet exists."""
    theirs = {"name": "theirs", "size_gigabytes": 1, "region": "tor1", "tags": ["kedge-volume:scans"]}
    do.api.client().volumes.create(theirs)
    do.api.faults.fail_next("POST", "/v2/tags/*/resources", status=500, times=None)
    with pytest.raises(KedgeError, match="can't be tagged"):
        do.provider().create(do.order(volumes=(volume(),)))
    assert do.api.droplets() == []
    assert do.provider().describe(M1) is None
