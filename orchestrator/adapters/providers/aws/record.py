"""What the laptop must know before AWS does: written through to the disk before a machine is asked for.

`<folder>/machines/<id>.json` says where a machine was asked for and which host key it will show; a crash right after
the request leaves it, and the next command finds the machine by it. `<folder>/runs/<id>.json` spares the calls that
would find a run's role and security groups again. The cloud's tags are the truth; without these files machines are
still found and ended, but can't be reached: nobody else knows their host keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import msgspec

from orchestrator.adapters.providers.aws.naming import check_id
from orchestrator.core.job import VolumeSpec

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine that was asked for.

    Attributes:
        token: the idempotency token of the request.
        host_key: the public host key that the machine shows.
        pinned: the host key replaced the one that came with the user-data.
        account: in which it was asked for: under another one it is not to be seen.
        asked_at: when the request was about to be sent, aware UTC.
        unclear_since: when the last request had ended without AWS having said what it made; None where it did.
        volumes: the data volumes that it is to have.
        instance_id: empty until AWS has answered.
    """

    id: str
    run_id: str
    region: str
    token: str
    host_key: str
    asked_at: datetime
    lifetime_seconds: int
    usd_per_hour: Decimal
    account: str = ""
    unclear_since: datetime | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    pinned: bool = False
    instance_id: str = ""
    gpus: int = 0

    @property
    def deadline_at(self) -> datetime:
        """When it must be gone, counted from the request."""
        return self.asked_at + timedelta(seconds=self.lifetime_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A run's security group in one region, and the one network that may reach port 22."""

    id: str
    ssh_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What there is of a run besides machines.

    Attributes:
        account: in which all this is; empty before any of it was made.
        role: its role and instance profile were made.
        groups: region -> security group.
        volumes: regions in which it has used data volumes.
    """

    id: str
    account: str = ""
    role: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()


class Records:
    """The records' folder."""

    def __init__(self, folder: Path) -> None:
        self._machines = folder / "machines"
        self._runs = folder / "runs"

    def machine(self, machine_id: str) -> MachineRecord | None:
        """Look a machine's record up."""
        return _read(self._machines / f"{check_id(machine_id)}.json", MachineRecord)

    def machines(self) -> Iterator[MachineRecord]:
        """Read every machine's record."""
        for path in sorted(self._machines.glob("[!.]*.json")):
            record = _read(path, MachineRecord)
            if record is not None:
                yield record

    def keep_machine(self, record: MachineRecord) -> None:
        """Write a machine's record; when this returns, it outlives a crash of the computer."""
        _write_through(self._machines / f"{check_id(record.id)}.json", record)

    def forget_machine(self, machine_id: str) -> None:
        """Remove a machine's record, if there is one."""
        (self._machines / f"{check_id(machine_id)}.json").unlink(missing_ok=True)

    def run(self, run_id: str) -> RunRecord:
        """Look a run's record up; an empty one where there is none."""
        return _read(self._runs / f"{check_id(run_id)}.json", RunRecord) or RunRecord(id=run_id)

    def runs(self) -> Iterator[RunRecord]:
        """Read every run's record."""
        for path in sorted(self._runs.glob("[!.]*.json")):
            record = _read(path, RunRecord)
            if record is not None:
                yield record

    def keep_run(self, record: RunRecord) -> None:
        """Write a run's record."""
        _write_through(self._runs / f"{check_id(record.id)}.json", record)

    def forget_run(self, run_id: str) -> None:
        """Remove a run's record, if there is one."""
        (self._runs / f"{check_id(run_id)}.json").unlink(missing_ok=True)


def _read(path: Path, kind: type[_Record]) -> _Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        # Half a file was never the record of a request that was sent.
        return None


def _write_through(path: Path, record: MachineRecord | RunRecord) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    # The name is on the disk only when the folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
