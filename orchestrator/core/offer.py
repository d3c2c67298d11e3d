"""Offers: what a provider sells now, and at what price."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerators:
    """A number of GPUs of one model.

    Attributes:
        name: the model in lower case, as in SkyPilot: `mi300x`, `a10g`, `h100`.
        count: their number.
    """

    name: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine type that a provider sells now, at a price.

    Attributes:
        accelerators: None for a machine without a GPU.
        gpu_memory_gib: of one GPU; 0 without one.
        usd_per_hour: current price of the machine alone.
        cap_usd_per_hour: the most that an hour may cost later: a spot price may rise up to the on-demand price or the
            user's own limit; 0 if the price can't rise.
        disk_usd_per_hour: price of its root disk, of the requested data volumes, and of its public address.
        once_usd: one-time cost of creating the data volumes, on top of the hourly price.
        disk_gib: the disk included with the machine.
        local_disk_gib: additional fast local disks, which are lost with the machine; 0 for none.
        billed_for_at_least: the minimum time that is billed.
        live: False for an offer from a dated snapshot, which is only for planning and is never rented.
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
        """Price of an hour, disks included."""
        return self.usd_per_hour + self.disk_usd_per_hour

    @property
    def worst_usd_per_hour(self) -> Decimal:
        """The highest possible price of an hour, disks included."""
        return max(self.usd_per_hour, self.cap_usd_per_hour) + self.disk_usd_per_hour

    def is_like(self, other: Offer) -> bool:
        """Tell whether it is the same type at the same place; what kedge tries again, or avoids, is compared so."""
        return (self.place, self.instance_type) == (other.place, other.instance_type)

    @property
    def place(self) -> str:
        """The provider, the region and the zone, leaving out empty and repeated parts."""
        return "/".join(dict.fromkeys(part for part in (self.provider, self.region, self.zone) if part))
