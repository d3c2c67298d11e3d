"""Prints a run's log, from its machine or from what the machine left in the object store."""

from __future__ import annotations

from orchestrator.app.root import App
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine
from orchestrator.engine import agent_client
from orchestrator.engine.follow import follow as follow_machine


def print_log(app: App, record: RunRecord, *, lines: int, follow: bool) -> None:
    """Print the last lines, and go on as more are written where asked to.

    Raises:
        KedgeError: there is no log anywhere.
    """
    machine = _machine(app, record)
    if machine is None:
        _print_shipped(app, record, lines)
    elif follow:
        _follow(app, record, machine, lines)
    else:
        for line in _tail(app, machine, lines)[0]:
            print(line)


def _machine(app: App, record: RunRecord) -> Machine | None:
    """Return the run's machine; None where only the object store has anything of it."""
    try:
        return app.machine(record)
    except UnreachableError:
        if app.ledger.machines(record.run_id, live_only=True):
            raise
        return None


def _follow(app: App, record: RunRecord, machine: Machine, lines: int) -> None:
    last, offset = _tail(app, machine, lines)
    for line in last:
        print(line, flush=True)
    for event in follow_machine(app.world(record.spec.provider), machine, offset=offset, until_over=True):
        if event.line is not None:
            print(event.line, flush=True)


def _tail(app: App, machine: Machine, lines: int) -> tuple[list[str], int]:
    """Return the log's last lines, and the offset at which it goes on."""
    return agent_client.tail(app.remote(machine), machine, lines)


def _print_shipped(app: App, record: RunRecord, lines: int) -> None:
    world = app.world(record.spec.provider)
    store = world.store
    if store is None or not world.has_results(record.run_id):
        raise KedgeError(
            f"there is no log of run {record.run_id}",
            why="its machine is gone, and nothing was copied to the object store",
        )
    for line in store.read_text(record.run_id, "run.log").splitlines()[-lines:]:
        print(line)
