"""Prints a run's log, from its machine or from what the machine uploaded to the object store."""

from __future__ import annotations

import sys
from collections.abc import Callable

from orchestrator.app.root import App
from orchestrator.cli.terminal.say import say
from orchestrator.cli.terminal.streams import draw
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.decoding import split_lines
from orchestrator.core.values.printable import clean_coloured
from orchestrator.engine import agent_client
from orchestrator.engine.observing.observe import latest_command
from orchestrator.engine.steps.follow import MachineLostError, lost, refuse_lost
from orchestrator.engine.steps.follow import follow as follow_machine

_UNCOLOURED = "\x1b[m"

_Show = Callable[[bytes], None]
"""Prints a line of the log, which comes without its line end."""


def print_log(app: App, record: RunRecord, *, lines: int, follow: bool, raw: bool = False) -> None:
    """Print the last lines, and following ones as they are written if asked to.

    Args:
        app: for the ledger and the connections.
        record: the run.
        lines: how many to begin with.
        follow: continue with new lines.
        raw: the bytes that the command printed; refused on a terminal.

    Raises:
        BadRequestError: raw bytes would go to a terminal.
        MachineLostError: the followed run has lost its machine, and isn't over.
        KedgeError: there is no log anywhere.
    """
    show = _shown_bytes() if raw else _show_text
    machine = _machine(app, record)
    tail = _tail(app, record, machine, lines) if machine else None
    if machine is None or tail is None:
        _print_uploaded(app, record, lines, show)
        if follow:
            _say_how_it_ended(app, record)
        return
    last, offset = tail
    for line in last:
        show(line)
    if follow:
        _follow(app, record, machine, offset, show)


def _shown_bytes() -> _Show:
    if sys.stdout.isatty():
        raise BadRequestError(
            "a log's raw bytes are not printed on a terminal",
            why="the terminal would execute the escape sequences in them",
            fix="pipe them, as in `kedge logs --raw | less`, or write them to a file; without --raw they are cleaned",
        )

    def show(line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    return show


def _show_text(line: bytes) -> None:
    text = line.decode(errors="replace")
    if not sys.stdout.isatty():
        print(text, flush=True)
        return
    shown = clean_coloured(text)
    end = _UNCOLOURED if "\x1b" in shown else ""
    draw(f"{shown}{end}\n")


def _machine(app: App, record: RunRecord) -> Machine | None:
    """Return the run's machine; None if only the object store has anything of it."""
    try:
        return app.machine(record)
    except UnreachableError:
        if app.ledger.machines(record.run_id, live_only=True):
            raise
        return None


def _tail(app: App, record: RunRecord, machine: Machine, lines: int) -> tuple[list[bytes], int] | None:
    """Return the last lines and the offset after them; None if the machine has ended since the ledger saw it."""
    try:
        return agent_client.tail(app.remote(machine), machine, lines)
    except KedgeError:
        try:
            refuse_lost(app.world(record.spec.provider), machine)
        except MachineLostError:
            return None
        raise


def _say_how_it_ended(app: App, record: RunRecord) -> None:
    """Print how a run without a machine ended.

    Raises:
        MachineLostError: it hasn't ended.
    """
    world = app.world(record.spec.provider)
    command = latest_command(world, record.run_id)
    if command is None or not command.state.is_over:
        raise lost(world, app.ledger.machines(record.run_id)[-1])
    say(f"run {record.run_id} is over: {command.state}")


def _follow(app: App, record: RunRecord, machine: Machine, offset: int, show: _Show) -> None:
    for event in follow_machine(app.world(record.spec.provider), machine, offset=offset, until_over=True):
        if event.line is not None:
            show(event.line.encode(errors="replace"))


def _print_uploaded(app: App, record: RunRecord, lines: int, show: _Show) -> None:
    world = app.world(record.spec.provider)
    store = world.store
    if store is None or not world.has_results(record.run_id):
        raise KedgeError(
            f"there is no log of run {record.run_id}",
            why="its machine is gone, and nothing was copied off it",
        )
    for line in split_lines(store.read_file(record.run_id, "run.log"))[-lines:]:
        show(line)
