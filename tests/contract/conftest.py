"""Each provider for the contract suite: an empty world with that provider, and orders that it can fill.

A new provider is one function below, and its name in PROVIDERS_UNDER_TEST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.core.machine import MachineOrder
from orchestrator.core.ports import Provider
from tests.adapters.aws.conftest import aws
from tests.adapters.aws.world import AwsWorld
from tests.adapters.cloud.faults import CLOUDS
from tests.adapters.cloud.life import order as make_order
from tests.adapters.digitalocean.world import DoWorld, restock_mi300x
from tests.adapters.lambdacloud.world import LambdaWorld
from tests.adapters.local.box import make_box
from tests.support.fake_cloud.account import TOKEN_CLOUD, FakeCloud
from tests.support.fake_cloud.command import fake_provider
from tests.support.fakes import FakeProvider

__all__ = ["aws"]


@dataclass(frozen=True)
class World:
    """One provider, empty at first.

    Attributes:
        open_provider: opens the provider over the same world, as the next command does.
        order: makes an order with this machine id that the provider can fill.
        leftovers: lists everything that is left in the world, even if `machines` doesn't show it.
    """

    name: str
    open_provider: Callable[[], Provider]
    order: Callable[[str], MachineOrder]
    leftovers: Callable[[], list[str]]


def local_world(request: pytest.FixtureRequest) -> World:
    tmp_path: Path = request.getfixturevalue("tmp_path")
    box = make_box(tmp_path / "local")
    return World(name="local", open_provider=box.provider, order=box.order, leftovers=box.leftovers)


def aws_world(request: pytest.FixtureRequest) -> World:
    """An account in the box's API, whose instances are only entries and don't boot."""
    account: AwsWorld = request.getfixturevalue("aws")

    def order(machine_id: str) -> MachineOrder:
        return account.order(id=machine_id, run_id=machine_id.rpartition("-m")[0])

    def leftovers() -> list[str]:
        return [*(instance["InstanceId"] for instance in account.instances()), *account.schedules()]

    return World(name="aws", open_provider=account.provider, order=order, leftovers=leftovers)


def digitalocean_world(request: pytest.FixtureRequest) -> World:
    """An account at DigitalOcean or at the AMD Developer Cloud, in the box's API; no droplet boots."""
    name = request.node.callspec.params["world"]
    api = request.getfixturevalue("amd_api" if name == "amd" else "do_api")
    if name == "do":
        restock_mi300x(api)
    account = DoWorld(
        api=api,
        folder=request.getfixturevalue("tmp_path"),
        name=name,
    )

    def order(machine_id: str) -> MachineOrder:
        return account.order(id=machine_id, run_id=machine_id.rpartition("-m")[0])

    def leftovers() -> list[str]:
        return [f"droplet {droplet.id}" for droplet in account.api.droplets()]

    return World(name=name, open_provider=account.provider, order=order, leftovers=leftovers)


def fake_world(request: pytest.FixtureRequest) -> World:
    """An account at a cloud in memory, with one of the two idempotency strategies."""
    name, claims = request.node.callspec.params["world"], request.getfixturevalue("tmp_path")
    account = FakeCloud(CLOUDS[name], clock=SystemClock(), ending=timedelta(0))
    records: dict[str, bytes] = {}

    def order(machine_id: str) -> MachineOrder:
        run_id = machine_id.rpartition("-m")[0]
        return replace(make_order(account.traits), id=machine_id, run_id=run_id, ssh_from="198.51.100.7/32")

    def leftovers() -> list[str]:
        return [*(instance.id for instance in account.billing()), *account.guards]

    return World(
        name=name, open_provider=lambda: fake_provider(account, records, claims), order=order, leftovers=leftovers
    )


def lambda_world(request: pytest.FixtureRequest) -> World:
    """An account at Lambda, in the box's API; no instance boots, and the box doesn't delay anything."""
    account = LambdaWorld(
        lam=request.getfixturevalue("lambda_api"), folder=request.getfixturevalue("tmp_path"), clock=SystemClock()
    )

    def order(machine_id: str) -> MachineOrder:
        return account.order(id=machine_id, run_id=machine_id.rpartition("-m")[0])

    def leftovers() -> list[str]:
        return [f"instance {instance.id}" for instance in account.lam.instances()]

    return World(name="lambda", open_provider=account.provider, order=order, leftovers=leftovers)


def scripted_world(request: pytest.FixtureRequest) -> World:
    """The fake provider that the engine's tests use."""
    provider = FakeProvider(boots=True)

    def order(machine_id: str) -> MachineOrder:
        return replace(make_order(TOKEN_CLOUD), id=machine_id, run_id=machine_id.rpartition("-m")[0])

    return World(name="fake", open_provider=lambda: provider, order=order, leftovers=list)


PROVIDERS_UNDER_TEST = {
    "fake": scripted_world,
    "token": fake_world,
    "mark": fake_world,
    "local": local_world,
    "aws": aws_world,
    "do": digitalocean_world,
    "amd": digitalocean_world,
    "lambda": lambda_world,
}


@pytest.fixture(params=PROVIDERS_UNDER_TEST)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = PROVIDERS_UNDER_TEST[request.param](request)
    yield made
    provider = made.open_provider()
    for machine in provider.machines():
        provider.destroy(machine.id)
