"""A deadline is moved at a cloud: record, marks and guard; a command that is killed in between is simply repeated."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.lifecycle.moving import move_deadline
from orchestrator.core.errors import BadRequestError, KedgeError
from tests.adapters.cloud.faults import CLOUDS
from tests.adapters.cloud.life import M1, World, create
from tests.support.fake_cloud.account import FakeCloud
from tests.support.fake_cloud.command import fake_provider
from tests.support.fake_cloud.process import KilledError, killed_at

EVERY_CLOUD = pytest.mark.parametrize("cloud", CLOUDS)
MOST_POINTS = 40


def made(cloud: str, tmp_path: Path) -> tuple[World, datetime]:
    """Make a machine; return its deadline as well."""
    world = World(FakeCloud(CLOUDS[cloud]), tmp_path)
    create(world)
    return world, deadline(world)


def deadline(world: World) -> datetime:
    seen = fake_provider(world.cloud, world.records, world.claims).describe(M1)
    assert seen is not None
    return seen.deadline_at


def keepers(world: World) -> set[datetime]:
    """Return the deadlines of the guard, and of the machine as a computer without records sees it."""
    (elsewhere,) = fake_provider(world.cloud, {}, world.claims / "elsewhere").machines()
    return {elsewhere.deadline_at, *(at for _, at in world.cloud.guards.values())}


@EVERY_CLOUD
def test_a_move_that_is_killed_anywhere_is_repeated(cloud: str, tmp_path: Path) -> None:
    """Meanwhile everybody has the old deadline or the new one; a cloud without a guard never changes its marks."""
    world, old = made(cloud, tmp_path)
    for point in range(MOST_POINTS):
        new = old + timedelta(hours=1)
        try:
            move_deadline(world.context(killed_at(point)), M1, new)
        except KilledError:
            assert {deadline(world)} | (keepers(world) if world.cloud.guards else set()) <= {old, new}, point
            remarks = move_deadline(world.context(), M1, new)
            assert deadline(world) == new, point
            assert bool(remarks) is not bool(world.cloud.guards)
            if world.cloud.guards:
                assert keepers(world) == {new}, point
            old = new
        else:
            return
    raise AssertionError("it has more points than the test tries")


@EVERY_CLOUD
def test_a_guard_that_can_not_be_moved_is_an_error(cloud: str, tmp_path: Path) -> None:
    """Its caller moves the others back."""
    world, old = made(cloud, tmp_path)
    world.cloud.faults = [(name, "error") for name in ("arm", "mark", "list", "read")]
    with pytest.raises(KedgeError, match="doesn't work"):
        move_deadline(world.context(), M1, old + timedelta(hours=1))


@EVERY_CLOUD
def test_only_the_computer_that_made_a_machine_moves_its_deadline(cloud: str, tmp_path: Path) -> None:
    """Another one has no key for its timer; nor may another account's credentials seem to find nothing."""
    world, old = made(cloud, tmp_path)
    with pytest.raises(KedgeError, match="can't be moved from this computer") as caught:
        move_deadline(world.elsewhere(), M1, old + timedelta(hours=1))
    assert caught.value.why == "another computer has requested it"
    world.cloud.account = "5678"
    with pytest.raises(BadRequestError, match="another account"):
        move_deadline(world.context(), M1, old + timedelta(hours=1))
    world.cloud.account = "1234"
    assert deadline(world) == old


@EVERY_CLOUD
def test_a_part_of_a_second_is_cut_off(cloud: str, tmp_path: Path) -> None:
    """The machine may cost less than was asked for, never more."""
    world, old = made(cloud, tmp_path)
    move_deadline(world.context(), M1, old + timedelta(seconds=90, milliseconds=900))
    assert deadline(world) == old + timedelta(seconds=90)


def test_a_namesake_is_not_moved(tmp_path: Path) -> None:
    """The recorded instance is gone, and another one has its mark."""
    world, old = made("token", tmp_path)
    world.cloud.end(world.cloud.instances[0])
    world.cloud.clock.sleep(timedelta(minutes=5))
    other = replace(world.cloud.instances[0], number=2, ended_at=None, edited={"attempt": "another"})
    world.cloud.instances.append(other)
    with pytest.raises(KedgeError, match="can't be moved from this computer"):
        move_deadline(world.context(), M1, old + timedelta(hours=1))
