"""What a provider must know before the cloud does: written through to the disk before a machine is asked for.

`<folder>/machines/<id>.json` is a machine's record, `<folder>/runs/<id>.json` a run's. A crash right after a request
leaves its record, by which the next command finds what it made. The cloud's tags are the truth: without these files
machines are still found and ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from orchestrator.adapters.files import write_atomically
from orchestrator.adapters.ids import check_id


class Record(Protocol):
    """Something with an id of kedge's."""

    @property
    def id(self) -> str:
        """The machine's, or the run's."""


_Record = TypeVar("_Record")
_Machine = TypeVar("_Machine", bound=Record)
_Run = TypeVar("_Run", bound=Record)


class RecordFolder(Generic[_Machine, _Run]):
    """The records of one provider.

    Args:
        folder: private to the user.
        machine: the type of a machine's record.
        run: the type of a run's; it can be made of an id alone.
    """

    def __init__(self, folder: Path, machine: type[_Machine], run: type[_Run]) -> None:
        self._machines = folder / "machines"
        self._runs = folder / "runs"
        self._machine = machine
        self._run = run
        self._no_run: Callable[..., _Run] = run

    def machine(self, machine_id: str) -> _Machine | None:
        """Look a machine's record up."""
        return _read(self._machines / f"{check_id(machine_id)}.json", self._machine)

    def machines(self) -> Iterator[_Machine]:
        """Read every machine's record."""
        yield from _read_all(self._machines, self._machine)

    def keep_machine(self, record: _Machine) -> None:
        """Write a machine's record; when this returns, it outlives a crash of the computer."""
        _write_through(self._machines / f"{check_id(record.id)}.json", record)

    def forget_machine(self, machine_id: str) -> None:
        """Remove a machine's record, if there is one."""
        (self._machines / f"{check_id(machine_id)}.json").unlink(missing_ok=True)

    def run(self, run_id: str) -> _Run:
        """Look a run's record up; an empty one where there is none."""
        return _read(self._runs / f"{check_id(run_id)}.json", self._run) or self._no_run(id=run_id)

    def runs(self) -> Iterator[_Run]:
        """Read every run's record."""
        yield from _read_all(self._runs, self._run)

    def keep_run(self, record: _Run) -> None:
        """Write a run's record."""
        _write_through(self._runs / f"{check_id(record.id)}.json", record)

    def forget_run(self, run_id: str) -> None:
        """Remove a run's record, if there is one."""
        (self._runs / f"{check_id(run_id)}.json").unlink(missing_ok=True)


def _read_all(folder: Path, kind: type[_Record]) -> Iterator[_Record]:
    for path in sorted(folder.glob("[!.]*.json")):
        record = _read(path, kind)
        if record is not None:
            yield record


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        # Half a file was never the record of a request that was sent.
        return None


def _write_through(path: Path, record: Record) -> None:
    write_atomically(path, msgspec.json.encode(record), durable=True)
