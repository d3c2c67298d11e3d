"""The catalog of machine types: which have which GPUs, and what EC2 says about a type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError
from orchestrator.core.offer import Accelerators

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import GpuDeviceInfoTypeDef, InstanceTypeInfoTypeDef, NetworkInfoTypeDef

    from orchestrator.core.job import Resources

# Names as SkyPilot writes them, in lower case. Families with ARM processors (g5g) aren't here: images are x86_64.
_FAMILIES = {
    "t4": ("g4dn.*",),
    "a10g": ("g5.*",),
    "l4": ("g6.*", "gr6.*"),
    "l40s": ("g6e.*",),
    "v100": ("p3.*",),
    "v100-32gb": ("p3dn.*",),
    "a100": ("p4d.*", "p4de.*"),
    "a100-80gb": ("p4de.*",),
    "h100": ("p5.*",),
    "h200": ("p5e.*", "p5en.*"),
    "b200": ("p6-b200.*",),
    "b300": ("p6-b300.*",),
}

# For a job without requirements. No burstable types (t3): beyond their baseline they bill more than their price, so
# that no worst case could be promised.
_PLAIN = ("m5.large", "m6i.large", "m7i.large", "m8i.large")

ALL_PATTERNS = tuple(dict.fromkeys(pattern for patterns in _FAMILIES.values() for pattern in patterns)) + _PLAIN
"""Every type that a job can get if it doesn't name its instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """One machine type.

    Attributes:
        gpu: in lower case; empty without GPUs.
        gpu_memory_gib: of one GPU.
        cpus: vCPUs, which quotas count.
        local_disk_gib: the sum of its local disks.
        clusters: its machines may be in a cluster placement group.
        has_efa: its first network interface can be an Elastic Fabric Adapter, over which machines of a placement group
            talk past the kernel.
    """

    name: str
    gpu: str = ""
    gpus: int = 0
    gpu_memory_gib: float = 0.0
    cpus: int
    memory_gib: float
    local_disk_gib: int = 0
    clusters: bool = False
    has_efa: bool = False

    @property
    def accelerators(self) -> Accelerators | None:
        """Its GPUs as an offer names them."""
        return Accelerators(name=self.gpu, count=self.gpus) if self.gpus else None


def wanted_patterns(resources: Resources) -> tuple[str, ...]:
    """Return the names of types that may fit the requirements, with `*` for any size.

    Raises:
        BadRequestError: AWS has no such GPU.
    """
    if resources.instance_type is not None:
        return (resources.instance_type,)
    if resources.accelerators is None:
        return _PLAIN
    return _patterns_of(resources.accelerators.name)


def choose_types(types: tuple[InstanceType, ...], resources: Resources) -> tuple[InstanceType, ...]:
    """Keep the types with the required GPUs."""
    wanted = resources.accelerators
    if wanted is None:
        return types
    patterns = _patterns_of(wanted.name)
    same_gpu = (kind for kind in types if any(fnmatchcase(kind.name, pattern) for pattern in patterns))
    return tuple(kind for kind in same_gpu if kind.gpus == wanted.count)


def parse_type(info: InstanceTypeInfoTypeDef) -> InstanceType:
    """Read an entry of DescribeInstanceTypes."""
    name = info["InstanceType"]
    gpu = next(iter(info.get("GpuInfo", {}).get("Gpus", [])), None)
    plain = InstanceType(
        name=name,
        cpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_gib=info["MemoryInfo"]["SizeInMiB"] / 1024,
        # In units of 10^9 bytes.
        local_disk_gib=info.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * 10**9 >> 30,
        # fact: aws-type-network
        clusters="cluster" in info.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
        has_efa=_has_efa(info.get("NetworkInfo", {})),
    )
    return plain if gpu is None else _with_gpu(plain, gpu)


def no_such_count(wanted: Accelerators, types: Iterable[InstanceType]) -> BadRequestError:
    """Make the error for a number of GPUs that none of these types has."""
    has = ", ".join(sorted({f"{kind.name} {kind.accelerators or 'no GPU'}" for kind in types}))
    return BadRequestError(
        f"no machine of AWS has {wanted} there",
        why=f"there are: {has}",
        fix="choose another count with --gpu NAME:COUNT, allow more regions, or leave --instance-type out",
    )


def _has_efa(network: NetworkInfoTypeDef) -> bool:
    """Tell whether the first card takes an EFA: the one interface that kedge asks for is there. fact: aws-efa-cards."""
    first = next((card for card in network.get("NetworkCards", []) if card.get("NetworkCardIndex") == 0), None)
    return network.get("EfaSupported", False) and (first is None or "efa" in first.get("InterfaceTypes", ["efa"]))


def _with_gpu(plain: InstanceType, gpu: GpuDeviceInfoTypeDef) -> InstanceType:
    return replace(
        plain,
        gpu=_gpu_name(plain.name, gpu["Name"]),
        gpus=gpu["Count"],
        gpu_memory_gib=round(gpu["MemoryInfo"]["SizeInMiB"] / 1024, 1),
    )


def _gpu_name(instance_type: str, said: str) -> str:
    """Distinguish GPUs that EC2 gives one name, such as the A100 of p4d (40 GB) and of p4de (80 GB)."""
    named = [gpu for gpu, patterns in _FAMILIES.items() if any(fnmatchcase(instance_type, each) for each in patterns)]
    return named[-1] if named else said.lower().replace(" ", "-")


def _patterns_of(gpu: str) -> tuple[str, ...]:
    patterns = _FAMILIES.get(gpu.lower())
    if patterns is None:
        near = difflib.get_close_matches(gpu.lower(), _FAMILIES, n=1)
        raise BadRequestError(
            f"AWS has no GPU {gpu!r}" + (f"; did you mean {near[0]}?" if near else ""),
            why=f"it has: {', '.join(_FAMILIES)}",
            fix="choose one of those with --gpu, or name a machine with --instance-type",
        )
    return patterns
