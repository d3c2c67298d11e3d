"""When to ship: every so often, at once when the command is over, and a last time before the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from . import state
from .checkpoints import Completeness, newest
from .config import peek_run_config
from .errors import AgentError
from .files import read_json, write_json
from .layout import Layout
from .restore import is_restored
from .results import scan
from .runlog import RunLog
from .shipping import Shipper
from .store import open_store
from .wire import FAILED, SUCCEEDED, Command, MachineConfig, Shipped, to_json


class ShipLoop:
    """Look at the results every round; ship them when it is time."""

    def __init__(self, layout: Layout, machine: MachineConfig, log: RunLog, *, last_ship: Callable[[], float]) -> None:
        self._layout = layout
        self._machine = machine
        self._log = log
        self._last_ship = last_ship
        self._completeness = Completeness()
        self._shipper: Shipper | None = None
        self._next_look = 0.0
        self._next_ship = time.monotonic() + machine.ship_every
        self._over_since = 0.0
        self._done_at: float | None = None
        self._last_is_shipped = False

    @property
    def round_seconds(self) -> float:
        """How often `step` wants to be called."""
        return min(0.5, self._machine.sample_every)

    def is_done(self, now: float) -> bool:
        """Say whether the command is over for good, all of it is in the store, and the linger is past."""
        return self._done_at is not None and now >= self._done_at + self._machine.linger

    def step(self) -> None:
        """Look, and ship if it is time."""
        self._look()
        command = state.observe(self._layout).command
        if not command.is_over:
            self._done_at = None
        if not self._machine.store_url or not is_restored(self._layout):
            return
        if command.is_over and command.since != self._over_since:
            self._ship_end(command)
        elif time.monotonic() >= self._next_ship or self._is_last():
            self._ship(command, final=command.is_over)

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._machine.sample_every
        found = scan(self._layout.results)
        self._completeness.look(found)
        checkpoint = newest(found, self._completeness.complete)
        write_json(self._layout.note("checkpoint"), to_json(checkpoint) if checkpoint else {})

    def _is_last(self) -> bool:
        return not self._last_is_shipped and time.time() >= self._last_ship()

    def _ship_end(self, command: Command) -> None:
        has_failed = bool(read_json(self._layout.note("shipped")).get("error"))
        if has_failed and time.monotonic() < self._next_ship and not self._is_last():
            return
        self._ship(command, final=True)
        self._over_since = command.since
        config = peek_run_config(self._layout)
        if command.state in (SUCCEEDED, FAILED) and not (config and config.keep):
            self._done_at = time.time()

    def _ship(self, command: Command, *, final: bool) -> None:
        self._last_is_shipped = self._is_last() or self._last_is_shipped
        self._next_ship = time.monotonic() + self._machine.ship_every
        try:
            shipper = self._open()
            if shipper is None:
                return
            shipped = shipper.ship(command, self._completeness.complete, final=final)
        except (OSError, AgentError, ValueError, KeyError, TypeError) as err:
            before = read_json(self._layout.note("shipped"))
            error = f"{type(err).__name__}: {err}"
            write_json(self._layout.note("shipped"), {**to_json(Shipped()), **before, "error": error})
            raise
        write_json(self._layout.note("shipped"), to_json(shipped))

    def _open(self) -> Shipper | None:
        if self._shipper is None:
            store = open_store(self._machine)
            self._shipper = Shipper(self._layout, self._machine, store) if store else None
        return self._shipper
