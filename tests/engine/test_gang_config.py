"""What each of several machines is told of the others."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.protocol.wire import RunConfig
from orchestrator.core.task import Nodes, Task
from orchestrator.engine.steps.gang_config import add_gang
from orchestrator.engine.steps.run_config import run_config
from tests.support.fake_cloud.gangs import JOB, RUN, SPEC
from tests.support.fakes import FakeProvider
from tests.support.orders import make_offer

TASKS = (
    Task(name="fetch", run="f", nodes=Nodes.HEAD),
    Task(name="train", run="t", after="fetch"),
    Task(name="watch", run="w"),
)

TOKEN = "known to the machines"


@pytest.fixture
def gang() -> list[Machine]:
    provider = FakeProvider()
    order = MachineOrder(
        id=RUN,
        run_id=RUN,
        offer=make_offer("fake", "big", "earth"),
        lifetime_seconds=60,
        authorized_key="",
        agent_archive=b"",
        store_url="",
    )
    return [provider.make(replace(order, id=f"{RUN}-m{rank + 1}", rank=rank)) for rank in range(3)]


def configure(gang: list[Machine], rank: int, **job: object) -> RunConfig:
    spec: LaunchSpec = replace(SPEC, job=msgspec.structs.replace(JOB, **job))
    return add_gang(run_config(spec, 8, {}, ""), spec.job, gang[rank], gang, TOKEN)


def test_all_machines_get_the_same_addresses_and_ports(gang: list[Machine]) -> None:
    """By rank; each task has a port of its own, also where another task is left out."""
    configs = [configure(gang, rank, tasks=TASKS, elastic=(2, 3)) for rank in range(3)]
    for config in configs:
        assert config.token == TOKEN
        assert TOKEN not in repr(config)
        assert config.addresses == ("192.0.2.1", "192.0.2.2", "192.0.2.3")
        assert config.elastic == (2, 3)
    ports = [{task.name: task.port for task in config.tasks} for config in configs]
    assert ports == [{"fetch": 0, "train": 29600, "watch": 29700}] + 2 * [{"train": 29600, "watch": 29700}]


def test_the_modes_that_follow_know_the_machines_too(gang: list[Machine]) -> None:
    """Their tasks have ports, those of the head are only there, and the machines agree on them at a port of its own."""
    later = msgspec.structs.replace(JOB, mode="fast", tasks=TASKS)
    spec = replace(SPEC, job=msgspec.structs.replace(JOB, mode="validate"), later=(later,))
    configs = [add_gang(run_config(spec, 8, {}, ""), spec.job, machine, gang, "t0k3n") for machine in gang]
    for config in configs:
        (then,) = config.then
        assert (config.modes_port, then.modes_port) == (29450, 29450)
        assert then.addresses == config.addresses == ("192.0.2.1", "192.0.2.2", "192.0.2.3")
    assert [[task.name for task in config.then[0].tasks] for config in configs] == [
        ["fetch", "train", "watch"],
        ["train", "watch"],
        ["train", "watch"],
    ]
    assert [task.port for task in configs[1].then[0].tasks] == [29600, 29700]


def test_a_task_of_the_head_is_only_there(gang: list[Machine]) -> None:
    """A task of all machines that comes after it waits on the head; on the others, it waits for the head."""
    head, other = (configure(gang, rank, tasks=TASKS) for rank in (0, 1))
    assert [(task.name, task.after) for task in head.tasks] == [("fetch", ""), ("train", "fetch"), ("watch", "")]
    assert [(task.name, task.after) for task in other.tasks] == [("train", ""), ("watch", "")]


def test_runs_on_one_computer_have_ports_of_their_own(gang: list[Machine]) -> None:
    """They share its addresses; a run's ports stay the same."""
    found = []
    for run in ("a-1", "a-2", "a-1"):
        local = [replace(machine, provider="local", run_id=run) for machine in gang]
        found.append(configure(local, 1).tasks[0].port)
    assert found[0] == found[2] != found[1]
    assert all(10_000 <= port < 28_000 for port in found)


def test_a_machine_without_a_private_address_is_refused(gang: list[Machine]) -> None:
    """The others couldn't reach it; a single machine needs none."""
    gang[1] = replace(gang[1], private_address="")
    with pytest.raises(KedgeError, match=f"{RUN}-m2 has no private address"):
        configure(gang, 0)
    assert configure(gang, 0, num_nodes=1).addresses == ()
