"""The API's sizes of droplets, parsed, with SkyPilot's names of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError
from orchestrator.core.offer import Accelerators

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json

SPOT = "-spot"
"""The end of the slug of a spot size, whose droplets may be reclaimed."""

_PLAIN_MINIMUM, _GPU_MINIMUM = timedelta(seconds=60), timedelta(minutes=5)

# In gpu-mi300x8 the x is also part of the model's name; in gpu-h100x8 it isn't.
_SLUG = re.compile(r"gpu-(?P<model>mi\d+x(?=\d)|[a-z0-9]+?(?=x\d))x?(?P<count>\d+)-(?P<vram>\d+)gb(?:-[a-z0-9]+)*")
_VENDOR = re.compile(r"^(?:amd|nvidia)_")
_ADA = re.compile(r"(?:rtx_?)?(\d{4})_?ada")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size.

    Attributes:
        slug: the API's name.
        gpu: SkyPilot's name in lower case: `mi300x`, `rtx4000-ada`; empty without GPUs.
        gpu_memory_gib: of one GPU.
        scratch_gib: of the additional local disks, which are lost with the droplet.
        regions: where it is offered. A size without regions is listed, but not available.
    """

    slug: str
    cpus: int
    memory_gib: float
    disk_gib: int
    usd_per_hour: Decimal
    regions: tuple[str, ...]
    gpu: str = ""
    gpus: int = 0
    gpu_memory_gib: float = 0.0
    scratch_gib: int = 0

    @property
    def is_spot(self) -> bool:
        """Whether its droplets may be reclaimed."""
        return self.slug.endswith(SPOT)

    @property
    def accelerators(self) -> Accelerators | None:
        """Its GPUs as an offer names them."""
        return Accelerators(name=self.gpu, count=self.gpus) if self.gpus else None


def find_size(api: Api, slug: str) -> Size:
    """Look up a size by its slug.

    Raises:
        BadRequestError: there is no such size.
        ApiError: the API refuses, or doesn't answer.
    """
    listed = api.pages("the sizes can't be listed", api.client.sizes.list, "sizes")
    found = next((fields for fields in listed if fields["slug"] == slug), None)
    if found is None:
        raise BadRequestError(f"{api.site.name} has no size {slug}", fix="choose another --instance-type")
    return parse_size(found)


def billed_for_at_least(gpus: int) -> timedelta:
    """Return the shortest time billed for a droplet (inferred: do-gpu-minimum)."""
    return _GPU_MINIMUM if gpus else _PLAIN_MINIMUM


def parse_size(fields: Json) -> Size:
    """Parse a size; an unavailable size has no regions, whatever the API lists."""
    gpu, gpus, vram = _gpu(fields)
    return Size(
        slug=fields["slug"],
        cpus=fields["vcpus"],
        memory_gib=fields["memory"] / 1024,
        disk_gib=fields["disk"],
        usd_per_hour=parse_price(fields["price_hourly"]),
        regions=tuple(fields["regions"] or ()) if fields.get("available", True) else (),
        gpu=gpu,
        gpus=gpus,
        gpu_memory_gib=vram,
        scratch_gib=sum(disk["size"]["amount"] for disk in fields.get("disk_info") or () if disk["type"] == "scratch"),
    )


def parse_price(price: float) -> Decimal:
    """Parse dollars an hour: the API sends 0.00743999984115362 for 0.00744."""
    return Decimal(str(round(price, 5)))


def gpu_name(model: str) -> str:
    """Return SkyPilot's name of a GPU, in lower case, from the API's `nvidia_rtx4000_ada`."""
    plain = _VENDOR.sub("", model.lower())
    ada = _ADA.fullmatch(plain)
    return f"rtx{ada[1]}-ada" if ada else plain.replace("_", "-")


def choose_plain(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Keep sizes for a job without requirements: no GPU, two CPUs and 4 GiB; all sizes if there are none such."""
    known = tuple(sizes)
    plain = tuple(size for size in known if not size.gpus and size.cpus >= 2 and size.memory_gib >= 4)
    return plain or known


def _gpu(fields: Json) -> tuple[str, int, float]:
    """Return the GPUs' model, number and GiB of one; from the slug if the API's fields lack them."""
    named = _SLUG.fullmatch(fields["slug"])
    info = fields.get("gpu_info") or {}
    if named is None and not info:
        return "", 0, 0.0
    count = int(info.get("count") or (named["count"] if named else 1))
    model = info.get("model") or (named["model"] if named else "")
    # The API's figure, like the slug's, is the sum of all GPUs.
    all_gib = float((info.get("vram") or {}).get("amount") or (named["vram"] if named else 0))
    return gpu_name(model), count, round(all_gib / max(count, 1), 1)
