"""Which accelerators this machine has, without torch: from the kernel's own files and the vendors' tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .vendortools import ask_tool, find_newest_first

_NODES = "sys/class/kfd/kfd/topology/nodes"
_ROCM_VERSION_FILES = ("opt/rocm/.info/version", "opt/rocm/core*/.info/version", "opt/rocm-*/.info/version")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
# As `amd-smi version` writes it: "AMDSMI Tool: 25.3.0+ede62f2 | ... | ROCm version: 6.4.0 | amdgpu version: 6.12.12".
_ROCM_VERSION = re.compile(r"ROCm version:\s*(\d+\.\d+(?:\.\d+)?)")
# In the head of `nvidia-smi`'s table: the newest CUDA that the driver runs, whatever is installed.
_CUDA_VERSION = re.compile(r"CUDA (?:\w+ )?Version\s*:\s*(\d+\.\d+)")


@dataclass(frozen=True)
class Accelerators:
    """What is there; empty fields for what isn't.

    Attributes:
        archs: of AMD's GPUs, such as gfx942, that with the most compute units first: a CPU's own graphics comes last.
        rocm: version of the ROCm that is installed.
        cuda: the newest CUDA that NVIDIA's driver runs.
    """

    archs: tuple[str, ...] = ()
    rocm: str = ""
    cuda: str = ""


def find_accelerators(root: Path = Path("/")) -> Accelerators:
    """Look for them; `root` is where the system's files lie."""
    archs = find_architectures(root)
    if archs:
        version = _read_rocm_version(root) or _search(_ROCM_VERSION, ask_tool(["amd-smi", "version"], root))
        return Accelerators(archs=archs, rocm=version)
    return Accelerators(cuda=_search(_CUDA_VERSION, ask_tool(["nvidia-smi"], root)))


def find_architectures(root: Path = Path("/")) -> tuple[str, ...]:
    """List the architectures of AMD's GPUs from the kernel's topology, the biggest GPU first; it needs no ROCm."""
    nodes = [_parse_properties(path) for path in sorted((root / _NODES).glob("*/properties"))]
    gpus = [node for node in nodes if node.get("gfx_target_version", 0) > 0]
    gpus.sort(key=lambda node: node.get("simd_count", 0), reverse=True)
    return tuple(name_architecture(node["gfx_target_version"]) for node in gpus)


def name_architecture(version: int) -> str:
    """Name what the kernel numbers: 90402 is gfx942, and 90010 gfx90a: the last two are one hexadecimal digit each."""
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
