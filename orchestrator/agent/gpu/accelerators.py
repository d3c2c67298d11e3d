"""Detects the machine's accelerators from the kernel's files and the vendors' tools, without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..base.record import Record
from .vendor_tools import ask_tool, find_newest_first

_NODES = "sys/class/kfd/kfd/topology/nodes"
_ROCM_VERSION_FILES = ("opt/rocm/.info/version", "opt/rocm/core*/.info/version", "opt/rocm-*/.info/version")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
# From `amd-smi version`: "AMDSMI Tool: 25.3.0+ede62f2 | ... | ROCm version: 6.4.0 | amdgpu version: 6.12.12".
_ROCM_VERSION = re.compile(r"ROCm version:\s*(\d+\.\d+(?:\.\d+)?)")
# From the head of `nvidia-smi`'s table: the newest CUDA that the driver supports, whatever is installed.
_CUDA_VERSION = re.compile(r"CUDA (?:\w+ )?Version\s*:\s*(\d+\.\d+)")


class Accelerators(Record):
    """The machine's accelerators; fields are empty for what is missing.

    Attributes:
        archs: architectures of AMD GPUs, such as gfx942, most compute units first, so that an integrated GPU is last.
        rocm: the installed ROCm version.
        cuda: the newest CUDA that NVIDIA's driver supports.
    """

    archs: tuple[str, ...] = ()
    rocm: str = ""
    cuda: str = ""


def find_accelerators(root: Path = Path("/")) -> Accelerators:
    """Detect the accelerators; `root` is the root of the file system."""
    archs = find_architectures(root)
    if archs:
        version = _read_rocm_version(root) or _search(_ROCM_VERSION, ask_tool(["amd-smi", "version"], root))
        return Accelerators(archs=archs, rocm=version)
    return Accelerators(cuda=_search(_CUDA_VERSION, ask_tool(["nvidia-smi"], root)))


def find_architectures(root: Path = Path("/")) -> tuple[str, ...]:
    """List the architectures of AMD GPUs from the kernel's topology, largest GPU first; works without ROCm."""
    nodes = [_parse_properties(path) for path in sorted((root / _NODES).glob("*/properties"))]
    gpus = [node for node in nodes if node.get("gfx_target_version", 0) > 0]
    gpus.sort(key=lambda node: node.get("simd_count", 0), reverse=True)
    return tuple(name_architecture(node["gfx_target_version"]) for node in gpus)


def name_architecture(version: int) -> str:
    """Turn the kernel's number into a name: 90402 is gfx942, 90010 gfx90a; the last two parts are hex digits."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _parse_properties(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return dict(_pairs(lines))


def _pairs(lines: list[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        name, _, number = line.partition(" ")
        if number.strip().isdigit():
            yield name, int(number)


def _read_rocm_version(root: Path) -> str:
    for path in find_newest_first(root, _ROCM_VERSION_FILES):
        try:
            found = _VERSION.match(path.read_text().strip())
        except OSError:
            continue
        if found:
            return found.group()
    return ""


def _search(wanted: re.Pattern[str], text: str) -> str:
    found = wanted.search(text)
    return found.group(1) if found else ""
