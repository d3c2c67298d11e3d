"""Sends code and data to machines: to one, or to several at the same time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.actions import SendCode, SendData
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job
from orchestrator.core.machine import Machine
from orchestrator.core.transfers import CodeSource, Progress
from orchestrator.engine.events import ActionProgressed, Events, Remark
from orchestrator.engine.journal import Entry, journaled_together
from orchestrator.engine.world import World

Send = SendCode | SendData

_STOPPING_SECONDS = 60.0
"""How long to wait for transfers that were told to stop: rsync itself gives up a silent connection after this time."""


class _StoppedError(Exception):
    """Another transfer has failed, or the user has ended the command."""


def send(world: World, job: Job, action: Send, machine: Machine, progress: Progress) -> str:
    """Send what one action says to its machine, and return a remark about it.

    Raises:
        KedgeError: it can't be sent.
    """
    source = world.code_source(job) if isinstance(action, SendCode) else None
    return _send(world, source, action, machine, progress)


def send_together(
    world: World, job: Job, actions: Sequence[Send], machines: Mapping[str, Machine], events: Events
) -> list[str]:
    """Send to several machines at the same time, to each in the order of its actions; return a remark about each.

    The first failure stops the other transfers at their next progress; the machines keep what they have.

    Args:
        world: the run's ports.
        job: whose code is sent.
        actions: in the plan's order.
        machines: the machines of the actions, by their ids.
        events: receives the progress of all transfers together.

    Raises:
        KedgeError: the first failure.
    """
    sending = _Sending(world, job, actions, machines)
    run_id = next(iter(machines.values())).run_id
    with journaled_together(world.ledger, world.clock, run_id, actions) as entries:
        failed = sending.work(entries, events)
    if failed is not None:
        raise failed
    return [entry.note for entry in entries]


@dataclass(frozen=True, slots=True)
class _Moved:
    """An action has transferred this many bytes."""

    number: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """An action is done, or has failed; without a number, a machine's thread has ended, perhaps by surprise."""

    number: int | None = None
    note: str = ""
    error: KedgeError | None = None
    surprise: BaseException | None = None


@dataclass
class _Sending:
    """One thread for each machine; this one receives what they tell, so that only it draws and writes the ledger."""

    world: World
    job: Job
    actions: Sequence[Send]
    machines: Mapping[str, Machine]
    told: queue.SimpleQueue[_Moved | _Ended] = field(default_factory=queue.SimpleQueue)
    is_stopped: threading.Event = field(default_factory=threading.Event)

    def work(self, entries: Sequence[Entry], events: Events) -> KedgeError | None:
        """Send everything, note the outcomes, and return the first failure."""
        source = self.world.code_source(self.job) if any(isinstance(each, SendCode) for each in self.actions) else None
        # Daemon threads, so that the interpreter doesn't wait for them after Ctrl-C.
        threads = [
            threading.Thread(target=self._send_to, args=(machine, source), daemon=True)
            for machine in self.machines.values()
        ]
        for thread in threads:
            thread.start()
        try:
            failed = self._receive(entries, events, len(threads))
        finally:
            self.is_stopped.set()
            give_up_at = time.monotonic() + _STOPPING_SECONDS
            for thread in threads:
                thread.join(max(0.0, give_up_at - time.monotonic()))
        return failed

    def _receive(self, entries: Sequence[Entry], events: Events, at_work: int) -> KedgeError | None:
        """Note what the threads tell until all have ended, and return the first failure."""
        failed: KedgeError | None = None
        moved: dict[int, _Moved] = {}
        for entry in entries:
            entry.error = KedgeError("not sent", why="another transfer has failed")
        while at_work:
            told = self.told.get()
            if isinstance(told, _Moved):
                moved[told.number] = told
                done, total = (sum(amounts) for amounts in zip(*map(_amounts, moved.values()), strict=True))
                events(ActionProgressed(done=done, total=total))
            elif told.number is None:
                at_work -= 1
            else:
                entries[told.number].note, entries[told.number].error = told.note, told.error
                if told.error is not None and failed is None:
                    failed = told.error
                    events(Remark(text=f"machine {self.actions[told.number].machine_id}: {failed.what}"))
            if isinstance(told, _Ended) and told.surprise is not None:
                raise told.surprise
        return failed

    def _send_to(self, machine: Machine, source: CodeSource | None) -> None:
        """Perform one machine's actions; the end of this thread is told in any case."""
        surprise: BaseException | None = None
        try:
            for number, action in enumerate(self.actions):
                if action.machine_id == machine.id:
                    self._send(number, action, machine, source)
        except _StoppedError:
            pass
        except BaseException as err:  # noqa: BLE001 - it is raised again by the thread that waits
            surprise = err
        self.told.put(_Ended(surprise=surprise))

    def _send(self, number: int, action: Send, machine: Machine, source: CodeSource | None) -> None:
        if self.is_stopped.is_set():
            raise _StoppedError
        try:
            note = _send(self.world, source, action, machine, self._progress(number))
        except KedgeError as err:
            self.is_stopped.set()
            self.told.put(_Ended(number=number, error=err))
            raise _StoppedError from err
        self.told.put(_Ended(number=number, note=note))

    def _progress(self, number: int) -> Callable[[int, int], None]:
        def moved(done: int, total: int) -> None:
            if self.is_stopped.is_set():
                raise _StoppedError
            self.told.put(_Moved(number=number, done=done, total=total))

        return moved


def _amounts(moved: _Moved) -> tuple[int, int]:
    return moved.done, moved.total


def _send(world: World, source: CodeSource | None, action: Send, machine: Machine, progress: Progress) -> str:
    if isinstance(action, SendData):
        world.mover.send(action.mount, machine, progress, delete=action.delete)
        return ""
    if source is None:
        return "nothing to send"
    return source.send(world.connector.connect(machine.require_address()), machine, progress)[:12]
