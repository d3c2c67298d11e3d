"""One rented (or local) computer of a run, and where things lie on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import DataMount, VolumeSpec
from orchestrator.core.site import Site
from orchestrator.core.wire import BootOrder

CLOUD_ROOT = "/opt/kedge"
"""Where all that is kedge's lies on a machine of a cloud; a local machine has a folder of its own."""

CLOUD_ADMIN = "kedge"
"""Who administers such a machine, by sudo: only for what needs root."""

CLOUD_USER = "job"
"""As whom everything runs there that comes from the job; it has no sudo, unless the job file asks for it."""


class MachineState(StrEnum):
    """Where a machine is in its life; everything but GONE may cost money."""

    UNKNOWN = "unknown"
    """Its creation is not confirmed, or it has lost what looks after it: it counts as billing, and is ended first."""
    BOOTING = "booting"
    READY = "ready"
    ENDING = "ending"
    GONE = "gone"


class EndedBy(StrEnum):
    """Who ended a machine: whether the run is to go on on another depends on it."""

    PROVIDER = "provider"
    """It was taken away: the provider reclaimed it, or its hardware failed."""
    ITSELF = "itself"
    """It was switched off from inside."""
    START = "start"
    """Its provider couldn't start it: a failure of its own, or a limit of the account."""
    DEADLINE = "deadline"
    """Its deadline had come, out of band."""
    SOMEBODY = "somebody"
    """Whoever may, in the provider's console for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnd:
    """How a machine ended.

    Attributes:
        says: the provider's own words.
    """

    by: EndedBy
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAddress:
    """How to reach a machine, and how to know that it is the one.

    Attributes:
        host_key: the machine's public host key, `ssh-ed25519 AAAA...`; no other is accepted.
        key_file: the laptop's private key for it.
        provisional: the host key came with the user-data, which others may read: it is replaced over the first
            connection.
        jump_host: the SSH server to go through; empty for none.
        proxy_command: the command that carries the connection; empty for none.
        admin: the user who has sudo there; empty where nobody but `user` is known.
    """

    host: str
    port: int
    user: str
    host_key: str
    key_file: str
    provisional: bool = False
    jump_host: str = ""
    proxy_command: str = ""
    admin: str = ""

    @property
    def as_admin(self) -> SshAddress:
        """The same machine, entered by whoever has sudo there."""
        return replace(self, user=self.admin or self.user)

    @property
    def is_proxied(self) -> bool:
        """It can't be reached directly."""
        return bool(self.jump_host or self.proxy_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One computer of a run, as the provider and the ledger know it.

    Attributes:
        id: `<run id>-m<number>`; also its tag at the provider and its intent's id.
        provider_id: the provider's own name for it.
        root: the folder on it under which all that is kedge's lies.
        address: None until it has one.
        created_at: when billing began, aware UTC.
        deadline_at: when it must be gone, aware UTC.
        usd_per_hour: of the machine and its disks.
        region: where it is, as the provider calls it; empty where there are none.
        gpus: how many.
        billed_for_at_least: what is paid for, however soon it is gone.
        zstd: it can unpack zstd; else gzip is sent.
        end: how it ended, where it did so without a command of kedge's and its provider remembers.
    """

    id: str
    run_id: str
    provider: str
    provider_id: str
    state: MachineState
    root: str
    created_at: datetime
    deadline_at: datetime
    usd_per_hour: Decimal
    address: SshAddress | None = None
    region: str = ""
    gpus: int = 0
    billed_for_at_least: timedelta = timedelta(0)
    zstd: bool = False
    end: MachineEnd | None = None

    @property
    def agent(self) -> str:
        """The agent's launcher on the machine."""
        return f"{self.root}/bin/kedge-agent"

    @property
    def has_booted(self) -> bool:
        """Some command has seen its boot to the end: only that replaces its first host key."""
        return self.address is not None and not self.address.provisional

    @property
    def may_answer(self) -> bool:
        """It may be asked, and its results fetched; also where it is of no use for a new command any more."""
        return self.address is not None and self.state in (MachineState.READY, MachineState.UNKNOWN)

    def require_address(self) -> SshAddress:
        """Return its address.

        Raises:
            UnreachableError: it has none yet.
        """
        if self.address is None:
            raise UnreachableError(f"machine {self.id} has no address yet", fix="wait until it has booted")
        return self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOrder:
    """What a provider is asked to create.

    Attributes:
        id: the machine's id, the tag to find it by and the idempotency key.
        lifetime_seconds: counted from boot; the machine ends itself after it, whatever happens.
        agent_archive: the agent as a .tar.gz.
        usd_per_hour: disks included.
        store_url: where the agent ships checkpoints, logs and results; empty for nowhere.
        boot: what the machine does by itself once it has booted.
        disk_gib: of the root disk.
        disk_iops: of the root disk; None for what is sensible.
        disk_mibps: of the root disk; None for what is sensible.
        volumes: data volumes to make or to use again.
        data: what the run's job mounts; its machines need no other data set of the object store's.
        sudo: the job's user may become root.
        max_usd_per_hour: above it a spot machine is given up.
        ssh_from: who may reach it over SSH, as CIDR; empty for this computer's present address.
        site: where in the user's own account it goes.
    """

    id: str
    run_id: str
    instance_type: str
    region: str
    zone: str
    spot: bool
    usd_per_hour: Decimal
    lifetime_seconds: int
    authorized_key: str
    agent_archive: bytes
    store_url: str
    boot: BootOrder = field(default_factory=BootOrder)
    image_id: str | None = None
    disk_gib: int | None = None
    disk_iops: int | None = None
    disk_mibps: int | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    data: tuple[DataMount, ...] = ()
    sudo: bool = False
    max_usd_per_hour: Decimal | None = None
    ssh_from: str = ""
    site: Site = field(default_factory=Site)
