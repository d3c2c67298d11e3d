"""What the box sells: regions, sizes with prices, and public images; as DigitalOcean, or as the AMD Developer Cloud.

Slugs and prices of GPU sizes are those of infra/digitalocean/offers.json, whose `source` names where they were read
(fact: do-gpu-prices; a size of eight GPUs costs eight times as much as one). All other figures are plausible, no more.
DigitalOcean's regions are those that the OpenAPI description knows; what is sold where is the box's own choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_HOURS_PER_MONTH = 672
"""DigitalOcean's cap: https://docs.digitalocean.com/products/droplets/details/pricing/ (2026-11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a droplet can be; memory in MiB, disks in GiB, `tier` the least account tier that may have it."""

    slug: str
    vcpus: int
    memory: int
    disk: int
    usd_per_hour: Decimal
    regions: tuple[str, ...]
    available: bool = True
    scratch: int = 0
    gpus: int = 0
    model: str = ""
    vram_gib: int = 0
    tier: int = 1

    def describe(self) -> dict[str, Any]:
        """Return the size as the API shows it."""
        disks = [("local", self.disk)] if not self.gpus else [("boot", self.disk)]
        disks += [("scratch", self.scratch)] if self.scratch else []
        described: dict[str, Any] = {
            "slug": self.slug,
            "memory": self.memory,
            "vcpus": self.vcpus,
            "disk": self.disk,
            "transfer": 15.0 if self.gpus else 4.0,
            "price_monthly": float(self.usd_per_hour * _HOURS_PER_MONTH),
            "price_hourly": float(self.usd_per_hour),
            "regions": list(self.regions),
            "available": self.available,
            "description": f"GPU {self.model} - {self.gpus}X" if self.gpus else "Basic",
            "disk_info": [{"type": kind, "size": {"amount": gib, "unit": "gib"}} for kind, gib in disks],
        }
        return {**described, "gpu_info": self.describe_gpu()} if self.gpus else described

    def describe_gpu(self) -> dict[str, Any]:
        """Return what the API says of the GPUs."""
        return {"count": self.gpus, "model": self.model, "vram": {"amount": self.vram_gib, "unit": "gib"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicImage:
    """An image that everybody can use; `base` is what its machines are made of in the box."""

    slug: str
    name: str
    distribution: str
    kind: str
    disk: int = 15
    base: str = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region; volumes can be had where its features include `storage`."""

    name: str
    features: tuple[str, ...] = ("backups", "ipv6", "metadata", "install_agent", "storage", "image_transfer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What one site sells; regions and their names by slug."""

    regions: Mapping[str, Region]
    sizes: tuple[Size, ...]
    images: tuple[PublicImage, ...]


_REGIONS = {
    "nyc1": Region(name="New York 1"),
    "nyc2": Region(name="New York 2"),
    "nyc3": Region(name="New York 3"),
    "sfo3": Region(name="San Francisco 3"),
    "ams3": Region(name="Amsterdam 3"),
    "fra1": Region(name="Frankfurt 1"),
    "lon1": Region(name="London 1"),
    "sgp1": Region(name="Singapore 1"),
    "tor1": Region(name="Toronto 1"),
}

_ALL = tuple(_REGIONS)


def _basic(slug: str, vcpus: int, memory: int, disk: int, usd_per_hour: str) -> Size:
    return Size(slug=slug, vcpus=vcpus, memory=memory, disk=disk, usd_per_hour=Decimal(usd_per_hour), regions=_ALL)


def _gpu(slug: str, model: str, vram_gib: int, usd_per_hour: str, regions: str, *, gpus: int = 1) -> Size:
    return Size(
        slug=slug,
        vcpus=20 * gpus,
        memory=245760 * gpus,
        disk=720 if gpus == 1 else 2046,
        scratch=5120 * gpus,
        usd_per_hour=gpus * Decimal(usd_per_hour),
        regions=tuple(regions.split()),
        gpus=gpus,
        model=model,
        vram_gib=vram_gib * gpus,
        tier=2 if gpus == 1 else 3,
    )


_SIZES = (
    _basic("s-1vcpu-1gb", 1, 1024, 25, "0.00893"),
    _basic("s-2vcpu-4gb", 2, 4096, 80, "0.03571"),
    _basic("s-4vcpu-8gb", 4, 8192, 160, "0.07143"),
    _basic("c-8", 8, 16384, 100, "0.25"),
    # fact: do-gpu-prices
    # MI300X is listed as available, and offered nowhere. fact: do-listed-not-offered
    _gpu("gpu-mi300x1-192gb", "amd_mi300x", 192, "2.59", ""),
    _gpu("gpu-mi300x8-1536gb", "amd_mi300x", 192, "2.59", "", gpus=8),
    _gpu("gpu-mi325x1-256gb", "amd_mi325x", 256, "3.80", ""),
    _gpu("gpu-mi325x8-2048gb", "amd_mi325x", 256, "3.80", "nyc2", gpus=8),
    _gpu("gpu-h100x1-80gb", "nvidia_h100", 80, "4.41", "nyc2 tor1 ams3"),
    _gpu("gpu-h100x8-640gb", "nvidia_h100", 80, "4.41", "nyc2", gpus=8),
    _gpu("gpu-h200x1-141gb", "nvidia_h200", 141, "4.47", "nyc2"),
    _gpu("gpu-h200x8-1128gb", "nvidia_h200", 141, "4.47", "nyc2", gpus=8),
    _gpu("gpu-l40sx1-48gb", "nvidia_l40s", 48, "1.57", "tor1"),
    _gpu("gpu-4000adax1-20gb", "nvidia_rtx4000_ada", 20, "0.76", "tor1"),
    _gpu("gpu-6000adax1-48gb", "nvidia_rtx6000_ada", 48, "1.57", "tor1"),
    _gpu("gpu-mi350x1-288gb-spot", "amd_mi350x", 288, "2.46", "tor1"),
    _gpu("gpu-mi355x1-288gb-spot", "amd_mi355x", 288, "2.97", "tor1"),
)

_IMAGES = (
    PublicImage(slug="ubuntu-24-04-x64", name="24.04 (LTS) x64", distribution="Ubuntu", kind="distribution"),
    PublicImage(slug="ubuntu-22-04-x64", name="22.04 (LTS) x64", distribution="Ubuntu", kind="distribution"),
    PublicImage(slug="debian-12-x64", name="12 x64", distribution="Debian", kind="distribution", base="bare"),
    PublicImage(slug="gpu-amd-base", name="AMD AI/ML Ready", distribution="Ubuntu", kind="application", disk=60),
    PublicImage(slug="gpu-h100x1-base", name="NVIDIA AI/ML Ready", distribution="Ubuntu", kind="application", disk=60),
    PublicImage(
        slug="gpu-h100x8-base",
        name="NVIDIA AI/ML Ready with NVLink",
        distribution="Ubuntu",
        kind="application",
        disk=60,
    ),
    # The slug's middle is not known: third parties shorten it.
    PublicImage(
        slug="amddeveloperclou-pytorch280rocm700",
        name="PyTorch 2.8.0 - ROCm 7.0.0",
        distribution="Ubuntu",
        kind="application",
        disk=120,
    ),
)

DIGITALOCEAN = Catalogue(regions=_REGIONS, sizes=_SIZES, images=_IMAGES)

# fact: amd-devcloud-sizes
AMD = Catalogue(
    # Whether it has volumes isn't known. fact: amd-no-storage
    regions={"atl1": Region(name="Atlanta 1", features=("ipv6", "metadata", "install_agent"))},
    sizes=(
        _gpu("gpu-mi300x1-192gb-devcloud", "amd_mi300x", 192, "1.99", "atl1"),
        _gpu("gpu-mi300x8-1536gb-devcloud", "amd_mi300x", 192, "1.99", "atl1", gpus=8),
    ),
    # fact: amd-devcloud-images
    images=(
        PublicImage(slug="ubuntu-24-04-x64", name="24.04 (LTS) x64", distribution="Ubuntu", kind="distribution"),
        *(
            PublicImage(slug=slug, name=name, distribution="Ubuntu", kind="application", disk=120)
            for slug, name in (
                ("rocm-7-1-software", "ROCm 7.1"),
                ("rocm-7-2-4", "ROCm 7.2.4"),
                ("amddevelopercloud-pytorch2100rocm724", "PyTorch 2.10.0 - ROCm 7.2.4"),
                ("amddeveloperclou-vllm0230rocm724", "vLLM 0.23.0 - ROCm 7.2.4"),
            )
        ),
    ),
)
