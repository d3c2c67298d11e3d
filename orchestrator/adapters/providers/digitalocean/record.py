"""What the laptop must know before the API does: which host key a droplet will show, and what a run has been given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.providers.digitalocean.tags import droplet_tags
from orchestrator.adapters.records import RecordFolder
from orchestrator.core.job import VolumeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """A machine that was asked for.

    Attributes:
        attempt: of the request; the droplet's tags carry it.
        host_key: the public host key that the machine shows.
        pinned: the host key replaced the one that came with the user-data.
        account: in which it was asked for: under another one it is not to be seen.
        asked_at: when the request was about to be sent, aware UTC.
        unclear_since: the last request, of which nobody here has read an answer; None where the API has said what it
            made.
        volumes: the data volumes that it is to have.
        droplet_id: 0 until the API has answered.
        action_id: of the creation, which tells whether it succeeds; 0 where its answer wasn't read.
        noted_at: when its answer was read, which may be minutes after `asked_at` where it was busy.
        ended: its deletion was asked for, and accepted.
    """

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
    droplet_id: int = 0
    action_id: int = 0
    noted_at: datetime | None = None
    gpus: int = 0
    ended: bool = False

    @property
    def deadline_at(self) -> datetime:
        """When it must be gone, counted from the request."""
        return self.asked_at + timedelta(seconds=self.lifetime_seconds)

    @property
    def tags(self) -> list[str]:
        """What its droplet was made with, whatever people have done to its tags since."""
        return droplet_tags(
            machine_id=self.id,
            run_id=self.run_id,
            attempt=self.attempt,
            lifetime_seconds=self.lifetime_seconds,
            usd_per_hour=self.usd_per_hour,
        )

    @property
    def young_from(self) -> datetime:
        """From when on the time runs for which the API may not know its own droplet."""
        return self.noted_at or self.asked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What there is of a run besides machines.

    Attributes:
        account: in which all this is; empty before any of it was made.
        key: fingerprint of the SSH key; empty before the account has it.
        firewall: its id.
        ssh_from: the network that may reach port 22.
        project: its id; empty also where the token may make none.
    """

    id: str
    account: str = ""
    key: str = ""
    firewall: str = ""
    ssh_from: str = ""
    project: str = ""


class Records(RecordFolder[MachineRecord, RunRecord]):
    """The records' folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, MachineRecord, RunRecord)
