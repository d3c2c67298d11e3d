"""A machine's life at an in-memory cloud: an account, the laptops that use it, and commands that are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from orchestrator.adapters.cloud.api import Traits
from orchestrator.adapters.cloud.context import CloudContext
from orchestrator.adapters.cloud.lifecycle.creation import create_instance
from orchestrator.adapters.cloud.lifecycle.deletion import delete_machine
from orchestrator.adapters.cloud.model import Instance, present
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineOrder
from tests.adapters.cloud.faults import LAGS, Faults
from tests.support.fake_cloud.account import FakeCloud
from tests.support.fake_cloud.command import fake_context
from tests.support.fake_cloud.process import KilledError, Process, killed_at
from tests.support.orders import make_offer

RUN = "digits-1"
M1 = f"{RUN}-m1"


@dataclass
class World:
    """An account, and the laptops that use it.

    Attributes:
        records: the records of the first laptop.
    """

    cloud: FakeCloud
    claims: Path
    records: dict[str, bytes] = field(default_factory=dict)

    def context(self, process: Process | None = None) -> CloudContext:
        """Start a command on the first laptop."""
        return fake_context(self.cloud, self.records, self.claims, process)

    def elsewhere(self) -> CloudContext:
        """Start a command on a laptop without records."""
        return fake_context(self.cloud, {}, self.claims / "elsewhere")


def order(traits: Traits) -> MachineOrder:
    return MachineOrder(
        id=M1,
        run_id=RUN,
        offer=make_offer(traits.name, "large", "here"),
        lifetime_seconds=3600,
        authorized_key="ssh-ed25519 AAAA kedge",
        agent_archive=b"agent",
        store_url="",
    )


def create(world: World, process: Process | None = None) -> Instance:
    return create_instance(world.context(process), order(world.cloud.traits))


def create_again(ctx: CloudContext, world: World) -> Instance:
    """Repeat the command until it works, as a user does after an error about something unclear."""
    for _ in range(30):
        try:
            return create_instance(ctx, order(world.cloud.traits))
        except KedgeError:
            world.cloud.clock.sleep(timedelta(minutes=2))
    raise AssertionError("it can't be created any more")


def tear_down(ctx: CloudContext, world: World) -> None:
    """Repeat the command until the cloud confirms the end."""
    for _ in range(30):
        try:
            delete_machine(ctx, M1)
            if is_gone(ctx):
                return
        except KedgeError:
            pass
        world.cloud.clock.sleep(timedelta(minutes=2))
    raise AssertionError("it can't be ended")


def is_gone(ctx: CloudContext) -> bool:
    record = ctx.records.machine(M1)
    if present(ctx.find(M1, record)):
        return False
    return record is None or not ctx.traits.may_still_exist(record, ctx.clock.now())


def worlds(traits: Traits, faults: Faults, claims: Path, lags: tuple[int, ...] = LAGS) -> Iterator[Callable[[], World]]:
    """Yield, for each lag, a function that makes the same world again and again."""
    for lag in lags:
        yield partial(_world, traits, timedelta(seconds=lag), faults, claims)


def killed_everywhere(make: Callable[[], World]) -> Iterator[World]:
    """Yield a world for each point at which a creation can be killed, after the kill."""
    for point in range(1000):
        world = make()
        try:
            create(world, killed_at(point))
        except KilledError:
            yield world
        except KedgeError:
            return
        else:
            return


def is_complete(world: World, made: Instance) -> None:
    (living,) = world.cloud.living()
    assert living.id == made.id
    if world.cloud.guards:
        assert world.cloud.guards[M1][0] == made.id


def _world(traits: Traits, lag: timedelta, faults: Faults, claims: Path) -> World:
    return World(FakeCloud(traits, lag=lag, faults=list(faults)), claims)
