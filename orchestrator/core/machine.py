"""The rented (or local) computer of a run, its address, and the order that creates it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import DataMount, Resources, VolumeSpec
from orchestrator.core.offer import Offer
from orchestrator.core.protocol.wire import BootOrder
from orchestrator.core.values.site import Site

CLOUD_ROOT = "/opt/kedge"
"""The folder of all of kedge's files on a cloud machine; a local machine has its own."""

CLOUD_ADMIN = "kedge"
"""The administrator's user on a cloud machine, who has sudo; used only for what needs root."""

CLOUD_USER = "job"
"""The user that runs everything that comes from the job; it has no sudo unless the job file asks for it."""


class MachineState(StrEnum):
    """A machine's life cycle; in every state but GONE it may cost money."""

    UNKNOWN = "unknown"
    """Its creation is unconfirmed, or its init process is lost: it counts as billing, and is ended first."""
    BOOTING = "booting"
    READY = "ready"
    ENDING = "ending"
    GONE = "gone"


class EndedBy(StrEnum):
    """Who ended a machine; this decides whether the run continues on another one."""

    PROVIDER = "provider"
    """The provider reclaimed it, or its hardware failed."""
    ITSELF = "itself"
    """It was switched off from inside."""
    START = "start"
    """The provider couldn't start it: an internal failure, or a quota of the account."""
    DEADLINE = "deadline"
    """Its deadline passed, and a guard outside of the machine ended it."""
    SOMEBODY = "somebody"
    """Somebody with access to the account ended it, for example in the provider's console."""


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
    """How to connect to a machine, and how to verify its identity.

    Attributes:
        host_key: the machine's public host key, `ssh-ed25519 AAAA...`; no other is accepted.
        key_file: the laptop's private key for it.
        provisional: the host key came with the user-data, which others may read; the first connection replaces it.
        jump_host: the SSH server to go through; empty for none.
        proxy_command: the command that carries the connection; empty for none.
        admin: the user with sudo on the machine; empty if only `user` is known.
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
        """Return the same machine's address for its administrator."""
        return replace(self, user=self.admin or self.user)

    @property
    def is_proxied(self) -> bool:
        """Tell whether the connection goes through a jump host or a proxy command."""
        return bool(self.jump_host or self.proxy_command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One computer of a run, as the provider and the ledger know it.

    Attributes:
        id: `<run id>-m<number>`; also its tag at the provider and the id of its intent.
        provider_id: the provider's own name for it.
        root: the folder on it that holds all of kedge's files.
        address: None until it has one.
        created_at: when billing began, aware UTC.
        deadline_at: when it must be gone, aware UTC.
        usd_per_hour: price of the machine and its disks.
        region: the provider's name of it; empty if the provider has no regions.
        gpus: their number.
        billed_for_at_least: the minimum time that is billed.
        zstd: it can unpack zstd; otherwise gzip is sent.
        end: how it ended, if no kedge command ended it and its provider remembers.
        rank: its number among the machines of its run; 0 is the head, whose log is the run's.
        private_address: where the run's other machines reach it; empty until it has one, or if it has none.
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
    rank: int = 0
    private_address: str = ""

    @property
    def agent(self) -> str:
        """The path of the agent's launcher on the machine."""
        return f"{self.root}/bin/kedge-agent"

    @property
    def has_booted(self) -> bool:
        """Tell whether a kedge command has seen its boot complete, because that replaces its first host key."""
        return self.address is not None and not self.address.provisional

    @property
    def may_answer(self) -> bool:
        """Tell whether it may be queried and its results fetched, even if it can't run a new command."""
        return self.address is not None and self.state in (MachineState.READY, MachineState.UNKNOWN)

    def require_address(self) -> SshAddress:
        """Return its address.

        Raises:
            UnreachableError: it has none yet.
        """
        if self.address is None:
            raise UnreachableError(f"machine {self.id} has no address yet", fix="wait until it has booted")
        return self.address


def head_of(machines: Sequence[Machine]) -> Machine:
    """Return the newest head among a run's machines, which are listed oldest first; without one, the newest machine."""
    return next((machine for machine in reversed(machines) if not machine.rank), machines[-1])


def node_of(machines: Sequence[Machine], node: int) -> Machine | None:
    """Return the newest machine with a rank among a run's machines, which are listed oldest first; None without one.

    If there is no head, the newest machine stands in for it.
    """
    if not node:
        return head_of(machines) if machines else None
    return next((machine for machine in reversed(machines) if machine.rank == node), None)


def newest_gang(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return the newest machine of each rank, by rank; all machines of the run are listed oldest first."""
    newest = {machine.rank: machine for machine in machines}
    return tuple(newest[rank] for rank in sorted(newest))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOrder:
    """What a provider is asked to create.

    Attributes:
        id: the machine's id, which is its tag at the provider and the idempotency key.
        offer: what is rented, where, and at what price.
        lifetime_seconds: counted from boot; the machine ends itself after that, whatever happens.
        agent_archive: the agent as a .tar.gz.
        store_url: where the agent uploads checkpoints, logs and results; empty for nowhere.
        boot: what the machine does by itself after its boot.
        resources: what the job asks for: image, disks, and where in the user's own account the machine goes.
        data: the job's mounts; the machine may read no other data set in the object store.
        sudo: the job's user may become root.
        ssh_from: who may reach it over SSH, as CIDR; empty for this computer's current address.
        rank: its number among the machines of its run; 0 is the head.
    """

    id: str
    run_id: str
    offer: Offer
    lifetime_seconds: int
    authorized_key: str
    agent_archive: bytes
    store_url: str
    boot: BootOrder = field(default_factory=BootOrder)
    resources: Resources = field(default_factory=Resources)
    data: tuple[DataMount, ...] = ()
    sudo: bool = False
    ssh_from: str = ""
    rank: int = 0

    @property
    def instance_type(self) -> str:
        """The offer's instance type."""
        return self.offer.instance_type

    @property
    def region(self) -> str:
        """The offer's region."""
        return self.offer.region

    @property
    def zone(self) -> str:
        """The offer's zone; empty for any."""
        return self.offer.zone

    @property
    def spot(self) -> bool:
        """Tell whether the provider may reclaim it."""
        return self.offer.spot

    @property
    def num_nodes(self) -> int:
        """How many machines the run has, this one included."""
        return self.resources.num_nodes

    @property
    def image_id(self) -> str | None:
        """The provider's name of the disk image; None for the provider's GPU image."""
        return self.resources.image_id

    @property
    def disk_gib(self) -> int | None:
        """Size of the root disk; None for the offer's own."""
        return self.resources.disk_gib

    @property
    def disk_iops(self) -> int | None:
        """IOPS of the root disk; None for a sensible value."""
        return self.resources.disk_iops

    @property
    def disk_mibps(self) -> int | None:
        """Throughput of the root disk; None for a sensible value."""
        return self.resources.disk_mibps

    @property
    def volumes(self) -> tuple[VolumeSpec, ...]:
        """Data volumes to create or reuse."""
        return self.resources.volumes

    @property
    def max_usd_per_hour(self) -> Decimal | None:
        """The price above which a spot machine is given up."""
        return self.resources.max_usd_per_hour

    @property
    def site(self) -> Site:
        """Where in the user's own account it goes."""
        return self.resources.site

    @property
    def usd_per_hour(self) -> Decimal:
        """The offer's price, disks included."""
        return self.offer.total_usd_per_hour
