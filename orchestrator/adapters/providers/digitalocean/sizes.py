"""What a droplet can be: the API's sizes, with the GPUs under the names that the field uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.core.offer import Accelerators

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Json

SPOT = "-spot"
"""Ends the slug of a size that may be taken away."""

_PLAIN_MINIMUM, _GPU_MINIMUM = timedelta(seconds=60), timedelta(minutes=5)

# In gpu-mi300x8 the x is the model's own as well; in gpu-h100x8 it isn't.
_SLUG = re.compile(r"gpu-(?P<model>mi\d+x(?=\d)|[a-z0-9]+?(?=x\d))x?(?P<count>\d+)-(?P<vram>\d+)gb(?:-[a-z0-9]+)*")
_VENDOR = re.compile(r"^(?:amd|nvidia)_")
_ADA = re.compile(r"(?:rtx_?)?(\d{4})_?ada")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size.

    Attributes:
        slug: the API's name of it.
        gpu: in lower case, as SkyPilot writes it: `mi300x`, `rtx4000-ada`; empty without one.
        gpu_memory_gib: of one GPU.
        scratch_gib: of the disk that comes with it besides, and is lost with it.
        regions: where it is offered. One without any is listed, and can't be had.
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
        """Whether it may be taken away."""
        return self.slug.endswith(SPOT)

    @property
    def accelerators(self) -> Accelerators | None:
        """Its GPUs as an offer names them."""
        return Accelerators(name=self.gpu, count=self.gpus) if self.gpus else None


def billed_for_at_least(gpus: int) -> timedelta:
    """Return what is paid for a droplet, however soon it is deleted (inferred: do-gpu-minimum)."""
    return _GPU_MINIMUM if gpus else _PLAIN_MINIMUM


def parse_size(fields: Json) -> Size:
    """Read a size as the API lists it; one that isn't available is offered nowhere, whatever its regions say."""
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
    """Read dollars an hour: the API sends 0.00743999984115362 for 0.00744."""
    return Decimal(str(round(price, 5)))


def gpu_name(model: str) -> str:
    """Return a GPU's name as SkyPilot writes it, in lower case, from the API's `nvidia_rtx4000_ada`."""
    plain = _VENDOR.sub("", model.lower())
    ada = _ADA.fullmatch(plain)
    return f"rtx{ada[1]}-ada" if ada else plain.replace("_", "-")


def choose_plain(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Keep what suits a machine without wishes: no GPU, two CPUs and 4 GiB; all where nothing else is sold."""
    known = tuple(sizes)
    plain = tuple(size for size in known if not size.gpus and size.cpus >= 2 and size.memory_gib >= 4)
    return plain or known


def _gpu(fields: Json) -> tuple[str, int, float]:
    """Return model, count and GiB of one; the slug tells them where the API says less."""
    named = _SLUG.fullmatch(fields["slug"])
    info = fields.get("gpu_info") or {}
    if named is None and not info:
        return "", 0, 0.0
    count = int(info.get("count") or (named["count"] if named else 1))
    model = info.get("model") or (named["model"] if named else "")
    # The API's figure is that of all GPUs together, as the slug's.
    all_gib = float((info.get("vram") or {}).get("amount") or (named["vram"] if named else 0))
    return gpu_name(model), count, round(all_gib / max(count, 1), 1)
