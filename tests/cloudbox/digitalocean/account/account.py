"""One account: its resources, and the numbers that name them."""

from __future__ import annotations

import itertools
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.cloudbox.digitalocean.account.call import not_found
from tests.cloudbox.digitalocean.account.catalogue import Catalogue, Region, Size
from tests.cloudbox.digitalocean.account.state import (
    Action,
    Droplet,
    Firewall,
    Image,
    Project,
    ReservedIp,
    SshKey,
    Volume,
    VolumeSnapshot,
    Vpc,
)
from tests.cloudbox.rest.clock import BoxClock


@dataclass(slots=True, kw_only=True)
class Settings:
    """What a test may set; `reset` returns to these."""

    tier: int = 3
    """Of the account: 1 has no GPUs, 2 those of single-GPU sizes, 3 all."""
    refused_tier_status: Literal[403, 422] = 403
    account_status: Literal["active", "warning", "locked"] = "active"
    droplet_limit: int = 25
    gpu_limit: int = 16
    """Of GPUs in droplets, apart from the limit of droplets; the API tells it nowhere."""
    firewall_seconds: float = 2
    """From a firewall's change until the droplets that it concerns have it."""
    volume_limit: int = 100
    key_seconds: float = 10
    """From an SSH key's entry, listed at once, until a creation accepts it."""
    activation_seconds: float = 0
    """From a droplet's creation until its status is active, and the creation's action is over."""
    address_seconds: float = 0
    """From then until it has its address: it is active without one."""
    deletes_new: bool = False
    """Whether a deletion has an effect on a droplet whose creation is in progress."""
    not_found_seconds: float = 0
    """How long a new droplet is answered with 404."""
    unlisted_seconds: float = 0
    """How long a new droplet is missing in listings."""
    action_seconds: float = 0
    """Until an action is completed."""
    deletion_seconds: float = 0
    """From a delete's answer until the droplet is gone."""
    early_ssh_seconds: float = 0
    """How long the machine of a droplet answers every login with a request to wait, once its sshd is up."""
    requests_per_minute: int = 250
    requests_per_hour: int = 5000
    retry_after: bool = False
    """Whether a refusal by rate says when to come back."""


class Account:
    """The resources of one account; whoever reads or changes them holds the box's lock."""

    def __init__(self, clock: BoxClock, catalogue: Catalogue) -> None:
        self.clock = clock
        self._catalogue = catalogue
        self.settings = Settings()
        self._numbers = itertools.count(400_000_001 + secrets.randbelow(10**8))
        self.start_anew()

    def start_anew(self) -> None:
        """Forget everything; numbers go on, so that what is kept from before names nothing."""
        now = self.clock.now()
        self.settings = Settings()
        self.regions: dict[str, Region] = dict(self._catalogue.regions)
        self.sizes: dict[str, Size] = {size.slug: size for size in self._catalogue.sizes}
        self.sold_out: set[tuple[str, str]] = set()
        self.droplets: dict[int, Droplet] = {}
        self.actions: dict[int, Action] = {}
        self.volume_actions: dict[int, str] = {}
        self.address_actions: dict[int, str] = {}
        self.volumes: dict[str, Volume] = {}
        self.volume_snapshots: dict[str, VolumeSnapshot] = {}
        self.keys: dict[int, SshKey] = {}
        self.firewalls: dict[str, Firewall] = {}
        self.reserved_ips: dict[str, ReservedIp] = {}
        self.tags: dict[str, None] = {}
        self.destructions: dict[int, Destruction] = {}
        self.images: dict[int, Image] = dict(self._public_images(now))
        self.projects: dict[str, Project] = {}
        self.vpcs: dict[str, Vpc] = {}
        first = Project(
            id=new_uuid(),
            name="first-project",
            description="Update your project information under Settings",
            purpose="Other",
            environment="Development",
            created_at=now,
            is_default=True,
        )
        self.projects[first.id] = first

    def new_number(self) -> int:
        """Return a number that nothing had before."""
        return next(self._numbers)

    def present(self) -> list[Droplet]:
        """Return the droplets that exist, in order of creation."""
        now = self.clock.now()
        return [droplet for droplet in self.droplets.values() if droplet.exists(now)]

    def listed(self) -> list[Droplet]:
        """Return the droplets that listings show now."""
        now, lag = self.clock.now(), self.settings.unlisted_seconds
        return [one for one in self.droplets.values() if now >= one.created_at + lag and not one.seems_gone(now)]

    def droplet(self, number: int) -> Droplet:
        """Return a droplet that the API shows now. fact: do-late-404.

        Raises:
            ApiError: it doesn't.
        """
        now, droplet = self.clock.now(), self.droplets.get(number)
        if droplet is None or droplet.seems_gone(now) or now < droplet.created_at + self.settings.not_found_seconds:
            raise not_found()
        return droplet

    def bury(self) -> None:
        """Let go of what droplets had that are gone."""
        now = self.clock.now()
        gone = {number for number, droplet in self.droplets.items() if not droplet.exists(now)}
        for number in gone:
            self.forget(f"do:droplet:{number}")
            del self.droplets[number]
        holders: list[Volume | ReservedIp] = [*self.volumes.values(), *self.reserved_ips.values()]
        for holder in holders:
            if holder.droplet_id in gone:
                holder.droplet_id = None
        for firewall in self.firewalls.values():
            firewall.droplet_ids = [number for number in firewall.droplet_ids if number not in gone]

    def begin(self, kind: str, resource_id: int, resource_type: str, region: str) -> Action:
        """Enter an action that begins now."""
        now = self.clock.now()
        action = Action(
            id=self.new_number(),
            type=kind,
            resource_id=resource_id,
            resource_type=resource_type,
            region=region,
            started_at=now,
            done_at=now + self.settings.action_seconds,
        )
        self.actions[action.id] = action
        return action

    def default_vpc(self, region: str) -> Vpc:
        """Return a region's default network; the first thing in a region makes it."""
        for vpc in self.vpcs.values():
            if vpc.region == region and vpc.default:
                return vpc
        vpc = Vpc(
            id=new_uuid(),
            name=f"default-{region}",
            region=region,
            ip_range=f"10.{100 + list(self.regions).index(region)}.0.0/20",
            created_at=self.clock.now(),
            default=True,
        )
        self.vpcs[vpc.id] = vpc
        return vpc

    def _public_images(self, now: float) -> Iterator[tuple[int, Image]]:
        for number, public in enumerate(self._catalogue.images, 200_000_001):
            yield (
                number,
                Image(
                    id=number,
                    name=public.name,
                    created_at=now,
                    regions=tuple(self.regions),
                    size_gigabytes=float(public.disk) / 2,
                    min_disk_size=public.disk,
                    public=public,
                    base=public.base,
                ),
            )

    def default_project(self) -> Project:
        """Return the project that things are put into when nobody says which."""
        return next(project for project in self.projects.values() if project.is_default)

    def file_away(self, urn: str, project_id: str | None = None) -> None:
        """Put a resource into a project, out of any other."""
        self.forget(urn)
        project = self.projects.get(project_id or "", self.default_project())
        project.resources[urn] = self.clock.now()

    def forget(self, urn: str) -> None:
        """Take a resource that is gone out of its project."""
        for project in self.projects.values():
            project.resources.pop(urn, None)


@dataclass(slots=True, kw_only=True)
class Destruction:
    """How the end of a droplet with its associated resources went; `gone` has names by id by kind."""

    name: str
    at: float
    gone: dict[str, dict[str, str]]


def new_uuid() -> str:
    """Return an id for what isn't numbered."""
    return str(uuid.uuid4())
