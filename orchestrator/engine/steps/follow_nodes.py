"""Follows the logs of a run's machines at the same time; the run is over when its head is."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import Command
from orchestrator.core.protocol.stream import FollowEvent
from orchestrator.engine import agent_client
from orchestrator.engine.steps.follow import commands_of, follow, is_restarting
from orchestrator.engine.world import World

_PAUSE = timedelta(seconds=1)
_LAST_LINES_SECONDS = 10.0
"""How long the other machines' last lines are waited for once the head is over."""

Offsets = Mapping[str, int]
"""How many bytes of each log to skip, by the task's name."""


def follow_nodes(
    world: World, machines: Sequence[Machine], offsets: Mapping[int, Offsets], tasks: Sequence[str] = ()
) -> Iterator[tuple[int, FollowEvent]]:
    """Yield what the machines tell, with the rank of each, until the head is over.

    The head is followed as `follow` does it. Each other machine has a thread, which uses neither the provider nor the
    ledger; its events come after the head's next one, which comes within seconds. A machine that doesn't answer is
    tried again, and doesn't hold up the others.

    Args:
        world: the run's ports.
        machines: the head, then the others.
        offsets: for each rank; without one, its logs begin at their first lines.
        tasks: the names of the tasks; empty for all.

    Raises:
        KedgeError: the head can't be followed any more; see `follow`.
    """
    head, *rest = machines
    others = _Others(world, rest, offsets, tasks)
    try:
        for event in follow(world, head, offsets=offsets.get(head.rank, {}), tasks=tasks, until_over=True):
            yield head.rank, event
            yield from others.come()
        yield from others.last()
    finally:
        others.is_over.set()


class _Others:
    """The threads that follow the machines besides the head, and what came from them."""

    def __init__(
        self, world: World, machines: Sequence[Machine], offsets: Mapping[int, Offsets], tasks: Sequence[str]
    ) -> None:
        self.is_over = threading.Event()
        self._world = world
        self._tasks = tasks
        self._came: queue.SimpleQueue[tuple[int, FollowEvent | BaseException | None]] = queue.SimpleQueue()
        self._waiting = {machine.rank for machine in machines}
        for machine in machines:
            # A daemon thread, so that the interpreter doesn't wait for it after Ctrl-C.
            work = threading.Thread(target=self._work, args=(machine, offsets.get(machine.rank, {})), daemon=True)
            work.start()

    def come(self) -> Iterator[tuple[int, FollowEvent]]:
        """Yield what has come since the last call."""
        yield from self._until(0.0)

    def last(self) -> Iterator[tuple[int, FollowEvent]]:
        """Yield the machines' last events, now that the head is over."""
        self.is_over.set()
        yield from self._until(_LAST_LINES_SECONDS)

    def _until(self, seconds: float) -> Iterator[tuple[int, FollowEvent]]:
        until = time.monotonic() + seconds
        while self._waiting:
            try:
                rank, event = self._came.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return
            if isinstance(event, BaseException):
                raise event
            if event is None:
                self._waiting.discard(rank)
            else:
                yield rank, event

    def _work(self, machine: Machine, offsets: Offsets) -> None:
        try:
            for event in self._follow(machine, offsets):
                self._came.put((machine.rank, event))
        except BaseException as err:  # noqa: BLE001 - whoever reads the queue raises it
            self._came.put((machine.rank, err))
        else:
            self._came.put((machine.rank, None))

    def _follow(self, machine: Machine, offsets: Offsets) -> Iterator[FollowEvent]:
        """Yield events until the tasks are over; a broken connection is opened again until the head is over."""
        present = dict(offsets)
        told = False
        commands: list[Command] = []
        while True:
            try:
                remote = self._world.connector.connect(machine.require_address())
                for event in agent_client.follow(remote, machine, present, self._tasks, until_over=True):
                    present[event.task] = event.offset
                    commands = commands_of(event.report, self._tasks) if event.report else commands
                    told = False
                    yield event
            except KedgeError as err:
                if self.is_over.is_set():
                    return
                if not told:
                    told = True
                    line = f"[kedge] can't be followed at the moment: {err.what}"
                    yield FollowEvent(offset=present.get("", 0), line=line)
            else:
                if not is_restarting(commands, self._world.clock.now()):
                    return
            self.is_over.wait(_PAUSE.total_seconds())
