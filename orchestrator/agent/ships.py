"""When to ship: every so often, at once when the command is over, and a last time before the deadline.

In haste, when the machine is about to be taken away, pass follows pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from . import state
from .anew import Beginnings
from .caches import ship_caches
from .checkpoints import Completeness, newest
from .config import peek_run_config
from .errors import AgentError
from .files import read_json, write_json
from .layout import Layout
from .restore import is_restored
from .results import scan
from .runlog import RunLog
from .shipping import Shipper
from .snapshots import take_snapshot
from .store import open_store
from .wire import FAILED, SUCCEEDED, Command, MachineConfig, Shipped, to_json

_HASTE_SECONDS = 1.0
_FOLLOWED_SECONDS = 60.0
_ALONE_SECONDS = 30.0
_STILL_SECONDS = 1.0
_CACHES_EVERY = 10
"""Compiled kernels are copied once in so many times that results are: most are made in a run's first minutes."""


class ShipLoop:
    """Look at the results every round; ship them when it is time."""

    def __init__(
        self,
        layout: Layout,
        machine: MachineConfig,
        log: RunLog,
        *,
        last_ship: Callable[[], float],
        in_haste: Callable[[], bool],
    ) -> None:
        self._layout = layout
        self._machine = machine
        self._log = log
        self._last_ship = last_ship
        self._in_haste = in_haste
        self._completeness = Completeness(layout.checkpoints)
        self._beginnings = Beginnings(layout, log)
        self._snapped: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._shipper: Shipper | None = None
        self._next_look = 0.0
        self._tried_at = time.monotonic()
        self._over_since = 0.0
        self._done_at: float | None = None
        self._last_is_shipped = False
        self._next_caches = self._tried_at + _CACHES_EVERY * machine.ship_every

    @property
    def round_seconds(self) -> float:
        """How often `step` wants to be called."""
        return min(0.5, self._machine.sample_every)

    def is_done(self, now: float) -> bool:
        """Say whether the command is over for good, all of it is in the store, and the linger is past.

        Where nobody follows the command, nobody is about to fetch from here: the linger is short.
        """
        if self._done_at is None:
            return False
        is_followed = followed_at(self._layout) > self._done_at - _FOLLOWED_SECONDS
        return now >= self._done_at + (
            self._machine.linger if is_followed else min(self._machine.linger, _ALONE_SECONDS)
        )

    def step(self) -> None:
        """Look, and ship if it is time."""
        self._look()
        began = time.time()
        command = state.observe(self._layout).command
        # Who finds the machine gone reads in the store how its command was: at work again, not stopped by the user.
        is_back = not command.is_over and self._over_since > 0
        if not command.is_over:
            self._done_at = None
        if not self._machine.store_url:
            return
        is_just_over = command.is_over and command.since != self._over_since
        if not is_restored(self._layout):
            # It never began, for want of what the store has: nothing may be shipped, and there is nothing to ship.
            if is_just_over:
                self._settle(command)
        elif is_just_over:
            self._ship_end(command, began)
        elif is_back or self._is_due() or self._is_last():
            self._over_since = self._over_since if command.is_over else 0.0
            self._ship(command, began, final=command.is_over)
        if time.monotonic() >= self._next_caches and not self._in_haste():
            self._next_caches = time.monotonic() + _CACHES_EVERY * self._machine.ship_every
            ship_caches(self._layout, self._machine)

    def _look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + self._machine.sample_every
        found = scan(self._layout.results)
        self._completeness.look(found)
        seen = self._completeness
        self._beginnings.look(found, seen.complete | seen.whole)
        checkpoint = newest(found, seen.complete | (seen.restless & seen.whole) | self._snapped)
        write_json(self._layout.note("checkpoint"), to_json(checkpoint) if checkpoint else {})

    def _is_due(self) -> bool:
        every = self._machine.ship_every
        return time.monotonic() - self._tried_at >= (min(every, _HASTE_SECONDS) if self._in_haste() else every)

    def _is_last(self) -> bool:
        return not self._last_is_shipped and time.time() >= self._last_ship()

    def _ship_end(self, command: Command, began: float) -> None:
        has_failed = bool(read_json(self._layout.note("shipped")).get("error"))
        if has_failed and not self._is_due() and not self._is_last():
            return
        self._ship(command, began, final=True)
        self._settle(command)

    def _settle(self, command: Command) -> None:
        self._over_since = command.since
        config = peek_run_config(self._layout)
        if command.state in (SUCCEEDED, FAILED) and not (config and config.keep):
            self._done_at = time.time()

    def _ship(self, command: Command, began: float, *, final: bool) -> None:
        self._last_is_shipped = self._is_last() or self._last_is_shipped
        self._tried_at = time.monotonic()
        try:
            shipper = self._open()
            if shipper is None:
                return
            shipped = self._ship_whole(shipper, command, began, final=final)
        except (OSError, AgentError, ValueError, KeyError, TypeError) as err:
            before = read_json(self._layout.note("shipped"))
            error = f"{type(err).__name__}: {err}"
            write_json(self._layout.note("shipped"), {**to_json(Shipped()), **before, "error": error})
            raise
        write_json(self._layout.note("shipped"), to_json(shipped))

    def _ship_whole(self, shipper: Shipper, command: Command, began: float, *, final: bool) -> Shipped:
        """Ship what is complete, and snapshots of checkpoints that never stand still."""
        complete = self._completeness.complete
        if final or not self._completeness.restless:
            return shipper.ship(command, complete, began, final=final)
        restless = self._completeness.restless
        still = min(_STILL_SECONDS, self._machine.sample_every / 5)
        with take_snapshot(self._layout, scan(self._layout.results), restless, still) as snapshot:
            self._snapped |= snapshot.units
            self._tell_left_out(restless - snapshot.units)
            return shipper.ship(command, complete, began, final=False, snapshot=snapshot)

    def _tell_left_out(self, units: frozenset[str]) -> None:
        """Say once of each checkpoint that it is never copied, and why."""
        for unit in sorted(units - self._told):
            self._log.remark(
                f"checkpoint {unit} is not in the object store: it changes whenever it is copied, or the disk has no "
                "room for a copy; write it aside and rename it"
            )
        self._told |= units

    def _open(self) -> Shipper | None:
        if self._shipper is None:
            store = open_store(self._machine)
            self._shipper = Shipper(self._layout, self._machine, store) if store else None
        return self._shipper


def followed_at(layout: Layout) -> float:
    """Return when somebody followed the command last, in Unix seconds; 0 for never."""
    return float(read_json(layout.note("followed")).get("time", 0))
