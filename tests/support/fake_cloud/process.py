"""A command's process, which can be killed at each point, and the records that it leaves on its computer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from orchestrator.adapters.cloud.records import MachineRecord, read_record

_Seen = TypeVar("_Seen")


class KilledError(BaseException):
    """The process was killed."""


@dataclass
class Process:
    """A command's process, which can be interrupted before and after everything that it does to the world.

    Attributes:
        interrupt: called at each such point with its number.
        points: how many there have been.
    """

    interrupt: Callable[[int], None] = lambda _point: None
    points: int = 0

    def step(self) -> None:
        """Reach the next point, where the process may be interrupted."""
        at, self.points = self.points, self.points + 1
        self.interrupt(at)

    def act(self, what: Callable[[], _Seen]) -> _Seen:
        """Do something; the process can be interrupted before it, and after it before the answer is read."""
        self.step()
        done = what()
        self.step()
        return done


def killed_at(point: int) -> Process:
    """Make a process that is killed at a point."""

    def interrupt(at: int) -> None:
        if at == point:
            raise KilledError

    return Process(interrupt)


def interrupted_at(point: int, by: Callable[[], object]) -> Process:
    """Make a process that runs `by` at one point."""

    def interrupt(at: int) -> None:
        if at == point:
            by()

    return Process(interrupt)


@dataclass(frozen=True)
class FakeRun:
    """A run's record without any resources."""

    id: str
    account: str = ""
    places: tuple[str, ...] = ()
    volume_places: tuple[str, ...] = ()
    is_full: bool = False


class FakeRecords:
    """A computer's records, as bytes; they outlive its processes.

    Attributes:
        is_full: the records of runs are complete: a run has nothing else, and no data volume.
    """

    def __init__(self, files: dict[str, bytes], process: Process) -> None:
        self.files = files
        self.is_full = False
        self._process = process

    def machine(self, machine_id: str) -> MachineRecord | None:
        """Read a machine's record."""
        content = self.files.get(machine_id)
        return read_record(content) if content is not None else None

    def machines(self) -> Iterator[MachineRecord]:
        """Read all machines' records."""
        yield from [read_record(content) for content in self.files.values()]

    def keep_machine(self, record: MachineRecord) -> None:
        """Write a machine's record."""
        self._process.act(lambda: self.files.update({record.id: msgspec.json.encode(record)}))

    def forget_machine(self, machine_id: str) -> None:
        """Remove a machine's record."""
        self._process.act(lambda: self.files.pop(machine_id, None))

    def run(self, run_id: str) -> FakeRun:
        """Return a run's record."""
        return FakeRun(run_id, is_full=self.is_full)

    def runs(self) -> Iterator[FakeRun]:
        """Return no records."""
        yield from ()

    def forget_run(self, run_id: str) -> None:
        """Remove nothing."""
