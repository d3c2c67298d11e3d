"""Reads the last lines of a run's logs: from each of its machines, or from what it uploaded to the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from orchestrator.app.root import App
from orchestrator.cli.terminal.say import say
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine, node_of
from orchestrator.core.protocol.decoding import split_lines
from orchestrator.engine import agent_client
from orchestrator.engine.observing.at_once import call_each
from orchestrator.engine.steps.follow import MachineLostError, refuse_lost


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLogs:
    """The logs of one node.

    Attributes:
        machine: None if they come from the object store.
        lines: the last lines of each log, by the task's name.
        offsets: where each log goes on.
    """

    node: int
    machine: Machine | None = None
    lines: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)


def read_nodes(
    app: App, record: RunRecord, nodes: Sequence[int], logs: Mapping[str, str], count: int
) -> list[NodeLogs]:
    """Read the last lines of each node's logs, from all machines at the same time.

    What a machine that is gone has uploaded is read instead. If one of several doesn't answer, that is said, and the
    others are read.

    Args:
        app: for the ledger and the connections.
        record: the run.
        nodes: the ranks.
        logs: paths relative to the results, by the tasks' names.
        count: how many lines of each log.

    Raises:
        KedgeError: no node has a log, or none of the machines answers.
    """
    machines = {node: _machine(app, record, node, alone=len(nodes) == 1) for node in nodes}
    there = [machine for machine in machines.values() if machine is not None]
    answers = call_each([partial(_tail, app, machine, logs, count) for machine in there], app.connector.close)
    # The provider is asked about machines that don't answer by one thread, one after the other.
    found = {machine.rank: _settle(app, record, machine, seen) for machine, seen in zip(there, answers, strict=True)}
    problems = {node: seen for node, seen in found.items() if isinstance(seen, KedgeError)}
    if len(problems) == len(nodes):
        raise next(iter(problems.values()))
    for node, problem in problems.items():
        say(f"! node {node}: {problem.what}")
    read = [seen for seen in found.values() if isinstance(seen, NodeLogs)]
    gone = [node for node in nodes if not isinstance(found.get(node), NodeLogs)]
    if gone and (not read or _has_store(app, record)):
        read += _read_uploaded(app, record, gone, logs)
    return sorted(read, key=lambda each: each.node)


def _machine(app: App, record: RunRecord, node: int, *, alone: bool) -> Machine | None:
    """Return a node's machine; None if only the object store has anything of it. The head is waited for."""
    live = app.ledger.machines(record.run_id, live_only=True)
    if node and not alone:
        found = node_of(live, node)
        return found if found is not None and found.has_booted else None
    try:
        return app.machine(record, node)
    except UnreachableError:
        if node_of(live, node) is not None:
            raise
        return None


def _tail(app: App, machine: Machine, logs: Mapping[str, str], count: int) -> NodeLogs | KedgeError:
    try:
        remote = app.remote(machine)
        tails = {name: agent_client.tail(remote, machine, path, count) for name, path in logs.items()}
    except KedgeError as err:
        return err
    return NodeLogs(
        node=machine.rank,
        machine=machine,
        lines={name: lines for name, (lines, _) in tails.items()},
        offsets={name: offset for name, (_, offset) in tails.items()},
    )


def _settle(app: App, record: RunRecord, machine: Machine, seen: NodeLogs | KedgeError) -> NodeLogs | KedgeError | None:
    """Return None for a machine that has ended since the ledger saw it."""
    if isinstance(seen, NodeLogs):
        return seen
    try:
        refuse_lost(app.world(record.spec.provider), machine)
    except MachineLostError:
        return None
    return seen


def _has_store(app: App, record: RunRecord) -> bool:
    return app.world(record.spec.provider).store is not None


def _read_uploaded(app: App, record: RunRecord, nodes: Sequence[int], logs: Mapping[str, str]) -> list[NodeLogs]:
    world = app.world(record.spec.provider)
    store = world.store
    if store is None or not world.has_results(record.run_id):
        raise KedgeError(
            f"there is no log of run {record.run_id}",
            why="its machine is gone, and nothing was copied off it",
            fix=f"`kedge resume {record.run_id}` gives an unfinished run another machine",
        )
    return [
        NodeLogs(
            node=node,
            lines={name: split_lines(store.read_file(record.run_id, path, rank=node)) for name, path in logs.items()},
        )
        for node in nodes
    ]
