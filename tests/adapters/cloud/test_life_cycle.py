"""Every way to interrupt a creation, at both kinds of clouds, and what happens to its machine.

A command is killed before and after each thing that it does to the cloud or to its records, and the cloud fails each
of its calls in each way. Whatever happens next, there is one machine, and it can be ended.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.lifecycle.completing import guard_machine
from orchestrator.adapters.cloud.lifecycle.deletion import delete_machine
from orchestrator.core.errors import KedgeError, StillBillingError
from tests.adapters.cloud.faults import CLOUDS, LAGS, ONE_LAG, ROWS, Faults
from tests.adapters.cloud.life import (
    M1,
    create,
    create_again,
    is_complete,
    killed_everywhere,
    tear_down,
    worlds,
)
from tests.support.fake_cloud.process import KilledError, interrupted_at, killed_at

EVERY_FAULT = pytest.mark.parametrize(("cloud", "faults"), ROWS, ids=str)
EVERY_CLOUD = pytest.mark.parametrize("cloud", CLOUDS)
MOST_POINTS = 1000


@EVERY_FAULT
def test_a_creation_creates_one_machine_or_reports_what_may_bill(cloud: str, faults: Faults, tmp_path: Path) -> None:
    """Without a kill. After any error except StillBillingError nothing of the machine is left."""
    for make in worlds(CLOUDS[cloud], faults, tmp_path):
        world = make()
        try:
            is_complete(world, create(world))
        except StillBillingError:
            assert M1 in world.records
        except KedgeError:
            assert world.cloud.living() == []
        tear_down(world.context(), world)
        assert world.cloud.billing() == []


@EVERY_FAULT
def test_a_command_after_a_kill_makes_no_second_machine(cloud: str, faults: Faults, tmp_path: Path) -> None:
    """Wherever the first was killed. The machine has the host key of the record, and can be ended."""
    for make in worlds(CLOUDS[cloud], faults, tmp_path, ONE_LAG if faults else LAGS):
        for world in killed_everywhere(make):
            made = create_again(world.context(), world)
            assert world.cloud.most_at_once == 1
            is_complete(world, made)
            record = world.context().records.machine(M1)
            assert record is not None
            assert (record.provider_id, record.attempt) == (made.id, made.attempt)
            assert record.unclear_since is None
            tear_down(world.context(), world)
            assert world.cloud.billing() == []


@EVERY_FAULT
def test_what_a_killed_command_left_can_be_ended(cloud: str, faults: Faults, tmp_path: Path) -> None:
    """Including what appears late."""
    for make in worlds(CLOUDS[cloud], faults, tmp_path, ONE_LAG if faults else LAGS):
        for world in killed_everywhere(make):
            tear_down(world.context(), world)
            world.cloud.clock.sleep(timedelta(minutes=20))
            assert world.cloud.billing() == []


@EVERY_CLOUD
def test_a_killed_destruction_is_completed_by_the_next_command(cloud: str, tmp_path: Path) -> None:
    """Wherever it was killed, and even if the machine is so young that the cloud does not list it yet."""
    for make in worlds(CLOUDS[cloud], (), tmp_path):
        for point in range(MOST_POINTS):
            world = make()
            create(world)
            try:
                delete_machine(world.context(killed_at(point)), M1)
            except KilledError:
                tear_down(world.context(), world)
                assert world.cloud.billing() == []
            else:
                break


@EVERY_CLOUD
def test_two_computers_that_create_at_once_end_up_with_one_machine(cloud: str, tmp_path: Path) -> None:
    """The second does all of its work between any two steps of the first."""
    for make in worlds(CLOUDS[cloud], (), tmp_path):
        for point in range(MOST_POINTS):
            world = make()
            other = world.elsewhere()
            process = interrupted_at(point, partial(create_again, other, world))
            first = create_again(world.context(process), world)
            if point >= process.points:
                break
            is_complete(world, first)
            world.cloud.clock.sleep(world.cloud.lag)
            tear_down(other, world)
            assert world.cloud.billing() == []


@EVERY_CLOUD
def test_another_computer_continues_where_one_was_killed(cloud: str, tmp_path: Path) -> None:
    """It has no record. Once the cloud lists what was created, that is the one machine."""
    for make in worlds(CLOUDS[cloud], (), tmp_path):
        for world in killed_everywhere(make):
            world.cloud.clock.sleep(world.cloud.lag)
            made = create_again(world.elsewhere(), world)
            assert world.cloud.most_at_once == 1
            is_complete(world, made)
            world.cloud.clock.sleep(world.cloud.lag)
            tear_down(world.context(), world)
            assert world.cloud.billing() == []


@EVERY_CLOUD
def test_a_machine_whose_creator_was_killed_is_guarded_by_the_next_command(cloud: str, tmp_path: Path) -> None:
    """If its cloud has guards, once the machine is listed. No other command completes the machine."""
    for make in worlds(CLOUDS[cloud], (), tmp_path):
        for world in killed_everywhere(make):
            world.cloud.clock.sleep(world.cloud.lag)
            living = [each.id for each in world.cloud.living()]
            try:
                guard_machine(world.context(), M1)
            except KedgeError:
                assert living == []
            guarded = [instance_id for instance_id, _ in world.cloud.guards.values()]
            assert guarded == (living if world.context().api.guard else [])
