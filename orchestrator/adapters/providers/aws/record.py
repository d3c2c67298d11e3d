"""The laptop's record of a run at AWS, and the folder of all records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.cloud.records import NEWER, RecordFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A run's security group in one region, and the only network that it admits to port 22.

    Attributes:
        peers: it admits the run's machines to each other.
    """

    id: str
    ssh_from: str
    peers: bool = field(default=False, metadata=NEWER)

    @property
    def is_single(self) -> bool:
        """Whether that network is a single address."""
        return self.ssh_from.endswith(("/32", "/128"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecrets:
    """A run's secrets.

    Attributes:
        parameters: their names in the parameter store, each recorded before it is stored.
        readable: the run's role may read them.
    """

    parameters: tuple[str, ...] = ()
    readable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsRun:
    """A run's resources besides machines.

    Attributes:
        account: the account of these resources; empty before any was created.
        role: it has a role and an instance profile.
        shared_role: they are the ones that all runs share.
        groups: region -> security group.
        volumes: regions in which it has used data volumes.
        placements: region -> names of its placement groups.
        secrets: what it has stored of them.
        subnets: zone -> the one of the user's own subnets that all of its several machines are in.
    """

    id: str
    account: str = ""
    role: bool = False
    shared_role: bool = False
    groups: dict[str, Group] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    placements: dict[str, tuple[str, ...]] = field(default_factory=dict, metadata=NEWER)
    secrets: RunSecrets = field(default_factory=RunSecrets, metadata=NEWER)
    subnets: dict[str, str] = field(default_factory=dict, metadata=NEWER)

    @property
    def places(self) -> Collection[str]:
        """The regions in which it has resources."""
        return {*self.groups, *self.volumes, *self.placements}

    @property
    def volume_places(self) -> Collection[str]:
        """The regions in which it has used data volumes."""
        return self.volumes

    @property
    def is_full(self) -> bool:
        """True: this computer created the run's resources, and the record names all of them."""
        return self.role


class Records(RecordFolder[AwsRun]):
    """The folder of all records."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, AwsRun)

    def regions(self) -> set[str]:
        """List the regions in which this computer may have created something."""
        found = {record.region for record in self.machines()}
        return found.union(*(run.places for run in self.runs()))
