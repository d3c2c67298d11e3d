"""The records of machines and runs, written through to the disk before a request is sent to a cloud.

`<folder>/machines/<id>.json` is a machine's record: where it was requested, and its host key. After a crash, the next
command finds by it what the request made.
`<folder>/runs/<id>.json` is a run's record: it saves the calls that would find its firewall or role again. The cloud's
tags are authoritative: without these files machines are still found and ended, but not reached, since their host keys
are only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from orchestrator.adapters.host.claims import hold_folder
from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.host.ids import check_id
from orchestrator.core.errors import ConflictError
from orchestrator.core.job import VolumeSpec
from orchestrator.core.values.structs import convert, decode_json

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

NEWER = {"newer": True}
"""Metadata of fields that aren't written while they have their default: records stay readable for the kedge before."""

_FORMAT = 2
_OTHERS = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine that was requested, at any cloud.

    Attributes:
        format: of the file; files of format 1 lack this field, and differ between clouds.
        attempt: which request made it; also one of the instance's marks.
        host_key: the public host key that the machine shows.
        asked_at: when the request was about to be sent, aware UTC.
        account: the account of the request; credentials of another account can't see the machine.
        unclear_since: when the last unanswered request was sent or broke off; None once the cloud's answer is read.
        volumes: its data volumes.
        pinned: the host key has replaced the one in the user-data.
        provider_id: the cloud's own id; empty until the cloud has answered.
        token: the idempotency token of the request; empty if the cloud takes none.
        action: the cloud's id of the creation, by which its success is checked; empty if there is none, or if the
            answer wasn't read.
        noted_at: when the instance was first seen, in the answer or a listing; up to minutes after `asked_at`.
        ended: its instance was deleted, and its cloud no longer shows it.
        armed: it may have a deadline guard at the cloud.
        private: it has no public address.
        jump_host: see `core.values.site`.
        proxy_command: see `core.values.site`.
        rank: its number among the machines of its run.
    """

    format: int = _FORMAT
    id: str
    run_id: str
    region: str
    attempt: str
    host_key: str
    asked_at: datetime
    lifetime_seconds: int
    usd_per_hour: Decimal
    account: str = ""
    unclear_since: datetime | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    pinned: bool = False
    provider_id: str = ""
    token: str = ""
    action: str = ""
    noted_at: datetime | None = None
    ended: bool = False
    armed: bool = False
    gpus: int = 0
    private: bool = False
    jump_host: str = ""
    proxy_command: str = ""
    rank: int = field(default=0, metadata=NEWER)

    @property
    def deadline_at(self) -> datetime:
        """When it must be gone, counted from the request."""
        return self.asked_at + timedelta(seconds=self.lifetime_seconds)

    @property
    def young_from(self) -> datetime:
        """The start of the time in which the cloud may not know its own instance (`Traits.settles_in`)."""
        return self.noted_at or self.asked_at


def read_record(content: bytes) -> MachineRecord:
    """Read a machine's record in any format that kedge has written.

    Raises:
        msgspec.DecodeError: it isn't a record, or is truncated.
    """
    said = decode_json(content, dict[str, Any])
    return convert(said if "format" in said else _renew(said), MachineRecord)


class Record(Protocol):
    """A record with one of kedge's ids."""

    @property
    def id(self) -> str:
        """The id of the machine or the run."""


_Run = TypeVar("_Run", bound=Record)


class RecordFolder(Generic[_Run]):
    """The records of one provider.

    Args:
        folder: private to the user.
        run: the type of a run's record, callable with an id alone.
    """

    def __init__(self, folder: Path, run: type[_Run]) -> None:
        self._machines = folder / "machines"
        self._runs = folder / "runs"
        self._read_run: Callable[[bytes], _Run] = partial(decode_json, kind=run)
        self._no_run: Callable[..., _Run] = run

    def machine(self, machine_id: str) -> MachineRecord | None:
        """Read a machine's record; None if there is none."""
        return _read(self._machines / f"{check_id(machine_id)}.json", read_record)

    def machines(self) -> Iterator[MachineRecord]:
        """Read every machine's record."""
        yield from _read_all(self._machines, read_record)

    def keep_machine(self, record: MachineRecord) -> None:
        """Write a machine's record; once this returns, the record survives a crash of the computer."""
        _write_through(self._machines / f"{check_id(record.id)}.json", record)

    def forget_machine(self, machine_id: str) -> None:
        """Remove a machine's record, if there is one."""
        (self._machines / f"{check_id(machine_id)}.json").unlink(missing_ok=True)

    def run(self, run_id: str) -> _Run:
        """Read a run's record; an empty one if there is none."""
        return _read(self._runs / f"{check_id(run_id)}.json", self._read_run) or self._no_run(id=run_id)

    def runs(self) -> Iterator[_Run]:
        """Read every run's record."""
        yield from _read_all(self._runs, self._read_run)

    def keep_run(self, record: _Run) -> None:
        """Write a run's record."""
        _write_through(self._runs / f"{check_id(record.id)}.json", record)

    def change_run(self, run_id: str, change: Callable[[_Run], _Run], clock: Clock) -> _Run:
        """Rewrite a run's record under a lock, so that two commands don't undo each other's changes.

        Raises:
            ConflictError: another command has held the lock for ten seconds.
        """
        taken = ConflictError(
            f"the record of run {run_id} is being changed",
            why="another command on this computer is changing it",
            fix="wait for that command, and try again",
        )
        with hold_folder(self._runs, clock, taken, within=_OTHERS):
            record = change(self.run(run_id))
            self.keep_run(record)
            return record

    def forget_run(self, run_id: str) -> None:
        """Remove a run's record, if there is one."""
        (self._runs / f"{check_id(run_id)}.json").unlink(missing_ok=True)


_Read = TypeVar("_Read")


def _renew(said: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of format 1: AWS's have a `token`, DigitalOcean's an `attempt`."""
    of_aws = {"attempt": _as_tagged(said.get("asked_at")), "armed": True} if "token" in said else {}
    return {
        **of_aws,
        **said,
        "provider_id": said.get("instance_id") or str(said.get("droplet_id") or ""),
        "action": str(said.get("action_id") or ""),
    }


def _as_tagged(asked_at: object) -> str:
    """Format an instant as in the tag of AWS's instances: it distinguishes one request from another."""
    return convert(asked_at, datetime).isoformat()


def _read_all(folder: Path, read: Callable[[bytes], _Read]) -> Iterator[_Read]:
    for path in sorted(folder.glob("[!.]*.json")):
        record = _read(path, read)
        if record is not None:
            yield record


def _read(path: Path, read: Callable[[bytes], _Read]) -> _Read | None:
    try:
        return read(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        # A request is only sent once its whole record is on the disk: half a file belongs to no request.
        return None


def _write_through(path: Path, record: Record) -> None:
    write_atomically(path, msgspec.json.encode(_plain(record)), durable=True)


def _plain(value: Any) -> Any:
    """Return a record as mappings, without the fields that it doesn't use and that an earlier kedge didn't know."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if not is_dataclass(value):
        return value
    shown = (each for each in fields(value) if each.metadata != NEWER or getattr(value, each.name) != _default(each))
    return {each.name: _plain(getattr(value, each.name)) for each in shown}


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()
