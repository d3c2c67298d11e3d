"""What an account holds: plain data, kept true by the modules that answer calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.cloudbox.digitalocean.account.catalogue import PublicImage, Size


@dataclass(slots=True, kw_only=True)
class Action:
    """Something that was asked of a resource; it is done once the box's clock has reached `done_at`."""

    id: int
    type: str
    resource_id: int
    resource_type: str
    region: str
    started_at: float
    done_at: float
    fails: bool = False
    """Whether it ends `errored` then."""


@dataclass(slots=True, kw_only=True)
class Image:
    """An image: public, or a snapshot of the account's."""

    id: int
    name: str
    created_at: float
    regions: tuple[str, ...]
    size_gigabytes: float
    min_disk_size: int
    public: PublicImage | None = None
    droplet_id: int | None = None
    """Of which droplet it is a snapshot."""
    base: str = "host"
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Droplet:
    """A droplet. `power` is what its machine is asked to be; `deleted_at` is set once it is being destroyed."""

    id: int
    name: str
    region: str
    size: Size
    image: Image
    address: str
    created_at: float
    active_at: float
    powered: bool = True
    boots: int = 1
    """How often the machine was started; one more restarts it."""
    deleted_at: float | None = None
    reappears_at: float | None = None
    """When a droplet that only seems to be deleted is seen again, where that was ordered."""
    errored_at: float | None = None
    """When its creation fails, where that was ordered: it never becomes active, and bills until it is deleted."""
    tags: list[str] = field(default_factory=list)
    user_data: str = ""
    public_keys: tuple[str, ...] = ()
    volume_ids: list[str] = field(default_factory=list)
    vpc_uuid: str = ""

    def status(self, now: float) -> str:
        """Return the status that the API shows."""
        if not self.powered:
            return "off"
        return "active" if now >= self.active_at else "new"

    def is_being_created(self, now: float) -> bool:
        """Tell whether its creation is in progress."""
        return now < (self.active_at if self.errored_at is None else self.errored_at)

    def exists(self, now: float) -> bool:
        """Tell whether the droplet is there: it bills exactly as long."""
        return self.deleted_at is None or now < self.deleted_at or self.reappears_at is not None

    def seems_gone(self, now: float) -> bool:
        """Tell whether the API says that there is no such droplet."""
        gone = self.deleted_at is not None and now >= self.deleted_at
        return gone and (self.reappears_at is None or now < self.reappears_at)


@dataclass(slots=True, kw_only=True)
class Volume:
    """A volume of block storage, attached to at most one droplet."""

    id: str
    name: str
    region: str
    size_gigabytes: int
    created_at: float
    description: str = ""
    filesystem_type: str = ""
    filesystem_label: str = ""
    snapshot_id: str = ""
    droplet_id: int | None = None
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class VolumeSnapshot:
    """A snapshot of a volume."""

    id: str
    name: str
    volume_id: str
    region: str
    size_gigabytes: float
    min_disk_size: int
    created_at: float
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SshKey:
    """A public key of the account's; creations accept it once the box's clock has reached `accepted_at`."""

    id: int
    accepted_at: float
    name: str
    public_key: str
    fingerprint: str


@dataclass(slots=True, kw_only=True)
class Firewall:
    """Rules for the droplets that it names, or that carry one of its tags."""

    id: str
    name: str
    created_at: float
    inbound_rules: list[dict[str, Any]]
    outbound_rules: list[dict[str, Any]]
    changed_at: float = 0
    droplet_ids: list[int] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)

    def concerns(self, droplet: Droplet) -> bool:
        """Tell whether the rules are a droplet's."""
        return droplet.id in self.droplet_ids or not set(self.tags).isdisjoint(droplet.tags)


@dataclass(slots=True, kw_only=True)
class ReservedIp:
    """An address that is kept; it bills while no droplet has it."""

    ip: str
    region: str
    project_id: str
    created_at: float
    droplet_id: int | None = None


@dataclass(slots=True, kw_only=True)
class Project:
    """A folder for resources; `resources` maps each one's URN to when it was put there."""

    id: str
    name: str
    description: str
    purpose: str
    environment: str
    created_at: float
    is_default: bool = False
    resources: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Vpc:
    """A private network."""

    id: str
    name: str
    region: str
    ip_range: str
    created_at: float
    description: str = ""
    default: bool = False
