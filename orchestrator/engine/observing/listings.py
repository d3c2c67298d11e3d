"""Lists the machines of several providers at once: a slow or silent one delays the others by a time limit at most."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.core.machine import Machine
from orchestrator.core.values.units import format_duration
from orchestrator.engine.world import World

_LIMIT = timedelta(seconds=30)
"""How long one of several providers may take; the same as for a machine's report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A provider's machines, or why they are unknown.

    Attributes:
        error: None if the provider has answered. Others than KedgeError are bugs, for the caller to raise.
    """

    world: World
    machines: tuple[Machine, ...] = ()
    error: Exception | None = None


class Listings:
    """The lists that were requested; each provider has a thread.

    No two threads use one provider, because the clouds' SDKs aren't thread-safe. A thread whose time is up is
    abandoned. The only provider has no limit: nothing else waits for it.
    """

    def __init__(self, limit: timedelta = _LIMIT) -> None:
        self._limit = limit
        self._waiting: dict[str, World] = {}
        self._came: queue.SimpleQueue[Listing] = queue.SimpleQueue()

    def request(self, world: World) -> None:
        """Request a provider's list."""
        self._waiting[world.provider.name] = world
        # A daemon thread, unlike an executor's, so that the interpreter waits for it neither now nor after Ctrl-C.
        threading.Thread(target=lambda: self._came.put(_list_machines(world)), daemon=True).start()

    def arrivals(self) -> Iterator[Listing]:
        """Yield the lists as they arrive; a provider whose time is up has an error instead."""
        clock = next(world.clock for world in self._waiting.values())
        until = clock.now() + self._limit if len(self._waiting) > 1 else None
        while self._waiting:
            left = None if until is None else max(0.0, (until - clock.now()).total_seconds())
            try:
                listing = self._came.get(timeout=left)
            except queue.Empty:
                late = list(self._waiting.values())
                yield from (Listing(world=world, error=_too_slow(world, self._limit)) for world in late)
                return
            del self._waiting[listing.world.provider.name]
            yield listing


def _list_machines(world: World) -> Listing:
    try:
        return Listing(world=world, machines=tuple(world.provider.machines()))
    except Exception as err:  # noqa: BLE001 - the caller raises it
        return Listing(world=world, error=err)


def _too_slow(world: World, limit: timedelta) -> KedgeError:
    return UnreachableError(
        f"{world.provider.name} doesn't answer",
        why=f"it has not listed its machines within {format_duration(limit)}",
        fix="try again; `kedge status --ledger` contacts nobody",
    )
