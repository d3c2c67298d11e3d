"""What the laptop must know before AWS does: written through to the disk before a machine is asked for.

`<folder>/machines/<id>.json` says where a machine was asked for and which host key it will show; a crash right after
the request leaves it, and the next command finds the machine by it. `<folder>/runs/<id>.json` spares the calls that
would find a run's role and security groups again. The cloud's tags are the truth; without these files machines are
still found and ended, but can't be reached: nobody else knows their host keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.records import RecordFolder
from orchestrator.core.job import VolumeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine that was asked for.

    Attributes:
        token: the idempotency token of the request.
        host_key: the public host key that the machine shows.
        pinned: the host key replaced the one that came with the user-data.
        account: in which it was asked for: under another one it is not to be seen.
        asked_at: when the request was about to be sent, aware UTC.
        unclear_since: the last request, of which nobody here has read an answer: the one that is about to be sent, or
            the end of one that broke off. None where AWS has said what it made.
        volumes: the data volumes that it is to have.
        instance_id: empty until AWS has answered.
        armed: there may be a schedule for it.
        private: it has no public address.
        jump_host: how it is reached; see `core.site`.
        proxy_command: the same.
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
    armed: bool = True
    gpus: int = 0
    private: bool = False
    jump_host: str = ""
    proxy_command: str = ""

    @property
    def deadline_at(self) -> datetime:
        """When it must be gone, counted from the request."""
        return self.asked_at + timedelta(seconds=self.lifetime_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A run's security group in one region, and the one network that may reach port 22."""

    id: str
    ssh_from: str

    @property
    def is_single(self) -> bool:
        """That network is one address."""
        return self.ssh_from.endswith(("/32", "/128"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What there is of a run besides machines.

    Attributes:
        account: in which all this is; empty before any of it was made.
        role: it has a role and an instance profile.
        shared_role: they are those of all runs.
        groups: region -> security group.
        volumes: regions in which it has used data volumes.
    """

    id: str
    account: str = ""
    role: bool = False
    shared_role: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()


class Records(RecordFolder[MachineRecord, RunRecord]):
    """The records' folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, MachineRecord, RunRecord)

    def regions(self) -> set[str]:
        """List the regions in which there may be something that was made here."""
        found = {record.region for record in self.machines()}
        return found.union(*({*run.groups, *run.volumes} for run in self.runs()))
