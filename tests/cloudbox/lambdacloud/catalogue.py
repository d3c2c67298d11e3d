"""What the box offers: regions, instance types with prices, and images.

Types and prices were recorded by others from the live API on 2026-08-20 (fact: lambda-prices). The regions of each
type, and all figures of the type without a GPU, are invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REGIONS = {
    "us-east-1": "Virginia, USA",
    "us-south-1": "Texas, USA",
    "us-west-1": "California, USA",
    "europe-central-1": "Germany",
    "asia-northeast-1": "Osaka, Japan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """An instance type. `regions`: where the listing shows capacity."""

    name: str
    cents_per_hour: int
    vcpus: int
    memory_gib: int
    storage_gib: int
    gpu: str
    """Such as H100 (80 GB SXM5), the only place that has a GPU's memory. Empty without a GPU."""
    gpus: int = 0
    regions: tuple[str, ...] = ()
    architecture: str = "x86_64"

    def describe(self) -> dict[str, Any]:
        """Return the type as the API shows it, with an undocumented field. fact: lambda-unknown-fields."""
        return {
            "name": self.name,
            "description": f"{self.gpus}x {self.gpu}" if self.gpus else "CPU only",
            "gpu_description": self.gpu or "N/A",
            "price_cents_per_hour": self.cents_per_hour,
            "specs": {
                "vcpus": self.vcpus,
                "memory_gib": self.memory_gib,
                "storage_gib": self.storage_gib,
                "gpus": self.gpus,
            },
            "architecture": self.architecture,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image in one region; its family has images in several regions."""

    id: str
    family: str
    version: str
    region: str
    architecture: str = "x86_64"
    created_time: str = "2026-01-01T00:00:00+00:00"


_EVERYWHERE = tuple(REGIONS)
_HERE = ("us-east-1", "us-west-1")


def _type(name: str, cents: int, specs: str, gpu: str, *regions: str, arch: str = "x86_64") -> InstanceType:
    vcpus, memory, storage = (int(figure) for figure in specs.split("/"))
    count = name.split("_")[1].removesuffix("x")
    return InstanceType(
        name=name,
        cents_per_hour=cents,
        vcpus=vcpus,
        memory_gib=memory,
        storage_gib=storage,
        gpu=gpu,
        gpus=int(count) if gpu else 0,
        regions=regions,
        architecture=arch,
    )


TYPES = (
    _type("gpu_1x_a10", 129, "30/200/1400", "A10 (24 GB PCIe)", *_EVERYWHERE),
    _type("gpu_1x_a100", 199, "30/200/512", "A100 (40 GB PCIe)"),
    _type("gpu_1x_a100_sxm4", 199, "30/200/512", "A100 (40 GB SXM4)", *_HERE),
    _type("gpu_1x_a6000", 109, "14/100/200", "A6000 (48 GB)", "us-south-1"),
    _type("gpu_1x_rtx6000", 69, "14/46/512", "RTX 6000 (24 GB)"),
    _type("gpu_1x_gh200", 229, "64/432/4096", "GH200 (96 GB)", *_HERE, arch="arm64"),
    _type("gpu_1x_h100_pcie", 329, "26/200/1024", "H100 (80 GB PCIe)", "us-west-1"),
    _type("gpu_1x_h100_sxm5", 429, "26/225/2816", "H100 (80 GB SXM5)", "us-east-1", "us-south-1"),
    _type("gpu_1x_b200_sxm6", 699, "26/360/2816", "B200 (180 GB SXM6)", "us-south-1"),
    _type("gpu_2x_a100", 398, "60/400/1024", "A100 (40 GB PCIe)"),
    _type("gpu_4x_a100", 796, "120/800/1024", "A100 (40 GB PCIe)"),
    _type("gpu_4x_h100_sxm5", 1636, "104/900/11264", "H100 (80 GB SXM5)", "us-east-1"),
    _type("gpu_8x_a100", 1592, "124/1800/6144", "A100 (40 GB SXM4)", "us-west-1"),
    _type("gpu_8x_a100_80gb_sxm4", 2232, "240/1800/20480", "A100 (80 GB SXM4)", "us-east-1"),
    _type("gpu_8x_h100_sxm5", 3192, "208/1800/22528", "H100 (80 GB SXM5)", "us-east-1", "europe-central-1"),
    _type("gpu_8x_b200_sxm6", 5352, "208/2900/22528", "B200 (180 GB SXM6)"),
    _type("cpu_4x_general", 20, "4/16/512", "", "us-east-1"),
)

FAMILIES = {
    "lambda-stack-24-04": "24.4.3",
    "lambda-stack-22-04": "22.4.8",
    "gpu-base-24-04": "24.4.1",
    "gpu-base-22-04": "22.4.1",
}

_OLD = ("us-east-1", "us-west-1")
"""The regions where a launch without an image gets the older one. fact: lambda-default-images-differ."""


def images() -> list[Image]:
    """Return every image; the ids are the same in each box."""
    return [
        Image(
            id=f"{number:032x}",
            family=family,
            version=FAMILIES[family],
            region=region,
            architecture=architecture,
        )
        for number, (family, region, architecture) in enumerate(
            ((family, region, arch) for family in FAMILIES for region in REGIONS for arch in ("x86_64", "arm64")),
            0xA0,
        )
    ]


def default_family(region: str) -> str:
    """Return the image family of a launch that names none."""
    return "lambda-stack-22-04" if region in _OLD else "lambda-stack-24-04"
