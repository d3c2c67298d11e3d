"""What a provider sells now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """So many of one kind of GPU.

    Attributes:
        name: the model in lower case, as SkyPilot writes it: `mi300x`, `a10g`, `h100`.
        count: how many.
    """

    name: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something a provider sells now, at a price.

    Attributes:
        accelerators: None for a machine without a GPU.
        gpu_memory_gib: of one GPU; 0 without one.
        usd_per_hour: of the machine alone, now.
        cap_usd_per_hour: the most that an hour of the machine may come to cost: the price of a spot machine may rise,
            up to that on demand or to the user's own limit; 0 where it can't.
        disk_usd_per_hour: of its root disk, of the data volumes that were wished for, and of its public address.
        once_usd: what the data volumes cost once, when they are made, besides.
        disk_gib: what comes with the machine.
        local_disk_gib: of quick disks that come with it besides, and are lost with it; 0 for none.
        billed_for_at_least: what is paid for, however soon the machine is gone.
        live: False for one out of a dated snapshot: it serves to plan, and is never rented.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    accelerators: Accelerators | None
    gpu_memory_gib: float
    cpus: int
    memory_gib: float
    disk_gib: int
    usd_per_hour: Decimal
    cap_usd_per_hour: Decimal = Decimal(0)
    disk_usd_per_hour: Decimal = Decimal(0)
    once_usd: Decimal = Decimal(0)
    spot: bool = False
    local_disk_gib: int = 0
    billed_for_at_least: timedelta = timedelta(0)
    live: bool = True

    @property
    def total_usd_per_hour(self) -> Decimal:
        """What an hour costs, disks included."""
        return self.usd_per_hour + self.disk_usd_per_hour

    @property
    def worst_usd_per_hour(self) -> Decimal:
        """The most that an hour may come to cost, disks included."""
        return max(self.usd_per_hour, self.cap_usd_per_hour) + self.disk_usd_per_hour

    @property
    def place(self) -> str:
        """Name the provider, the region and the zone, as far as they say anything."""
        return "/".join(dict.fromkeys(part for part in (self.provider, self.region, self.zone) if part))
