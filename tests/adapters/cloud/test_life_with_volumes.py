"""A creation with data volumes that is interrupted anywhere: no volume bills unseen or goes to two machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.lifecycle.creation import create_instance
from orchestrator.adapters.cloud.model import Instance
from orchestrator.adapters.cloud.volumes.end import end_volumes
from orchestrator.core.errors import KedgeError, NoCapacityError
from orchestrator.core.job import AtEnd, VolumeSpec
from orchestrator.core.machine import MachineOrder
from tests.adapters.cloud import life
from tests.adapters.cloud.faults import CLOUDS, KINDS_OF_VOLUMES, Faults
from tests.adapters.cloud.life import RUN, World, tear_down
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.account import FakeCloud
from tests.support.fake_cloud.process import KilledError, Process, killed_at
from tests.support.fake_cloud.volumes import PLACE, FakeVolumes
from tests.support.orders import changed

SCANS = VolumeSpec(name="scans", target="scans", size_gib=20, at_end=AtEnd.DELETE)
MODELS = VolumeSpec(name="models", target="models", size_gib=20)
MOST_POINTS = 1000


def make_world(cloud: str, faults: Faults, claims: Path) -> World:
    clock = FakeClock()
    traits = KINDS_OF_VOLUMES[cloud]
    volumes = FakeVolumes(traits=traits, clock=clock, appears_after=traits.appears_in / 6)
    return World(FakeCloud(CLOUDS[cloud], clock=clock, faults=list(faults), volumes=volumes), claims)


def order(world: World) -> MachineOrder:
    return changed(life.order(world.cloud.traits), zone=PLACE, volumes=(SCANS, MODELS))


def create(world: World, process: Process | None = None) -> Instance:
    return create_instance(world.context(process), order(world))


def create_again(ctx: CloudContext, world: World) -> Instance:
    for _ in range(30):
        try:
            return create_instance(ctx, order(world))
        except KedgeError:
            world.cloud.clock.sleep(timedelta(minutes=2))
    raise AssertionError("it can't be created any more")


def killed_everywhere(make: Callable[[], World]) -> Iterator[World]:
    for point in range(MOST_POINTS):
        world = make()
        try:
            create(world, killed_at(point))
        except KilledError:
            yield world
        else:
            return


def volumes_of(world: World) -> FakeVolumes:
    assert world.cloud.volumes is not None
    return world.cloud.volumes


def end_all(world: World) -> list[str]:
    """Tear the run down, and return the names of the volumes that are left."""
    tear_down(world.context(), world)
    world.cloud.clock.sleep(timedelta(minutes=1))
    end_volumes(volumes_of(world), RUN, "here", world.cloud.clock)
    return sorted(each.name for each in volumes_of(world).volumes.values())


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("answer", ["", "drop"])
def test_a_command_after_a_kill_gives_the_machine_its_volumes(cloud: str, answer: str, tmp_path: Path) -> None:
    """Each volume is created once, and deleted with the run if the job says so."""
    faults: Faults = (("send", answer),) if answer else ()
    for world in killed_everywhere(partial(make_world, cloud, faults, tmp_path)):
        made = create_again(world.context(), world)
        life.is_complete(world, made)
        held = {each.name: each.holder for each in volumes_of(world).volumes.values()}
        assert held == {"scans": made.id, "models": made.id}
        assert end_all(world) == ["models"]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_volumes_of_a_killed_command_are_settled_with_its_run(cloud: str, tmp_path: Path) -> None:
    """A volume that is to be kept stays, with the run's mark."""
    for world in killed_everywhere(partial(make_world, cloud, (), tmp_path)):
        assert set(end_all(world)) <= {"models"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_that_cannot_be_created_leaves_no_volume(cloud: str, tmp_path: Path) -> None:
    """The next offer may be in another place, where they could not be attached."""
    world = make_world(cloud, (("send", "NEXT_POOL"),), tmp_path)
    with pytest.raises(NoCapacityError):
        create(world)
    assert volumes_of(world).volumes == {}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_that_is_not_completed_releases_its_volumes(cloud: str, tmp_path: Path) -> None:
    """Volumes that were attached at creation are deleted again. Others are settled at the run's end."""
    world = make_world(cloud, (("adopt", "error"),), tmp_path)
    with pytest.raises(KedgeError):
        create(world)
    assert world.cloud.living() == []
    assert (volumes_of(world).volumes == {}) == volumes_of(world).traits.attaches_at_birth
    assert set(end_all(world)) <= {"models"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_with_volumes_of_another_run_takes_none_of_them(cloud: str, tmp_path: Path) -> None:
    """Two machines that write to one disk destroy its data."""
    world = make_world(cloud, (), tmp_path)
    create(world)
    second = replace(order(world), id="other-1-m1", run_id="other-1")
    with pytest.raises(KedgeError, match="in use"):
        create_instance(world.context(), second)
    assert len(world.cloud.living()) == 1
