"""What the agent of each of a run's several machines is told of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.wire import RunConfig, TaskConfig
from orchestrator.core.task import Nodes

_LOCAL = "local"
_FIRST_PORT = 29500
"""The port that torchrun and others use by default."""
_PORTS = 100
"""The distance between the ports of two tasks, as with the agent's own choice for a single machine."""
_BELOW = 50
"""How far below the first task's port that of the modes is; torchrun's own rendezvous uses 29400 by default."""
_LOCAL_PORTS = range(10_000, 28_000)
"""On this computer several runs share the ports; these are below those that systems give to connections."""


def add_gang(config: RunConfig, job: Job, machine: Machine, gang: Sequence[Machine], token: str) -> RunConfig:
    """Add the run's machines to the configuration of one of them, and leave out tasks that run on the head only.

    The agents can't agree on a port before they can talk to each other, so each task's port is decided here: the same
    one at each start. So is that of the modes that follow.

    Args:
        config: as for a single machine.
        job: the job.
        machine: the machine that is configured.
        gang: all machines of the run, by rank.
        token: by which they recognize each other.

    Raises:
        KedgeError: a machine has no private address.
    """
    if job.num_nodes == 1:
        return config
    for each in gang:
        if not each.private_address:
            raise KedgeError(
                f"machine {each.id} has no private address",
                why="the run's machines reach each other there",
                fix=f"rent others with `kedge teardown {each.run_id}`, then `kedge resume {each.run_id}`",
            )
    first = _FIRST_PORT
    if machine.provider == _LOCAL:
        first = _LOCAL_PORTS[crc32(machine.run_id.encode()) % len(_LOCAL_PORTS)]
    addresses = tuple(each.private_address for each in gang)
    return replace(
        _on_machine(config, job, machine, first, addresses, token),
        then=tuple(_on_machine(mode, job, machine, first, addresses, token) for mode in config.then),
    )


def _on_machine(
    config: RunConfig, job: Job, machine: Machine, first_port: int, addresses: tuple[str, ...], token: str
) -> RunConfig:
    ports = {task.name: first_port + _PORTS * number for number, task in enumerate(config.tasks)}
    there = [task for task in config.tasks if not machine.rank or task.nodes != Nodes.HEAD]
    names = [task.name for task in there]
    return replace(
        config,
        tasks=tuple(_on_port(task, ports[task.name], names) for task in there),
        done=tuple(name for name in config.done if name in names),
        addresses=addresses,
        elastic=job.elastic,
        modes_port=first_port - _BELOW,
        token=token,
    )


def _on_port(task: TaskConfig, port: int, names: Sequence[str]) -> TaskConfig:
    """Give a task its port; what waits for a task of the head waits for the head, which waits for that task."""
    after = task.after if task.after in names else ""
    return replace(task, port=0 if task.nodes == Nodes.HEAD else port, after=after)
