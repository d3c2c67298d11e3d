"""The laptop's record of a run at DigitalOcean, and the folder of all records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.cloud.context import RunResourcesRecord
from orchestrator.adapters.cloud.records import NEWER, RecordFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class DoRun(RunResourcesRecord):
    """A run's resources besides machines.

    Attributes:
        account: the account of these resources; empty before any was created.
        key: fingerprint of the SSH key; empty before the account has it.
        firewall: its id.
        ssh_from: the network that may reach port 22.
        project: its id; also empty if the token lacks the scope.
        peers: the firewall admits the run's droplets to each other.
    """

    id: str
    account: str = ""
    key: str = ""
    firewall: str = ""
    ssh_from: str = ""
    project: str = ""
    peers: bool = field(default=False, metadata=NEWER)


class Records(RecordFolder[DoRun]):
    """The folder of all records of a site."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, DoRun)
