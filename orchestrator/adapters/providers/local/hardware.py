"""Reads this computer's hardware, by parsing the output of the vendors' tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_TOOL_S = 10.0
_GIB = 1024**3
_MIB_IN_GIB = 1024

# The model's name within what drivers print; the first pattern that matches counts.
_MODELS = (
    re.compile(r"\b(MI\d{2,3}[A-Z]?)\b", re.IGNORECASE),
    re.compile(r"\bRTX (PRO )?(A?\d{4}( Ti| SUPER)*|A\d{3,4})( Ada)?\b", re.IGNORECASE),
    re.compile(r"\b((?:GH|GB|[ABHLTVP])\d{1,4}[A-Z]?)\b"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFound:
    """One GPU of this computer.

    Attributes:
        name: as in job files: `mi300x`, `h100`, `rtx4090`.
        memory_gib: 0 if the tool doesn't report it.
    """

    name: str
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Computer:
    """This computer's resources.

    Attributes:
        disk_gib: free space in the machines' folder.
    """

    cpus: int
    memory_gib: float
    disk_gib: int
    gpus: tuple[GpuFound, ...] = ()


def read_computer(state_dir: Path) -> Computer:
    """Read this computer's resources; GPUs are found if nvidia-smi, amd-smi or rocm-smi is installed and works."""
    return Computer(
        cpus=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / _GIB, 1),
        disk_gib=shutil.disk_usage(_nearest_existing(state_dir)).free // _GIB,
        gpus=_read_gpus(),
    )


def gpu_name(printed: str) -> str:
    """Return a GPU's name as job files write it: `NVIDIA GeForce RTX 4090` is `rtx4090`."""
    for pattern in _MODELS:
        if match := pattern.search(printed):
            found = match.group(0).lower().replace(" ada", "-ada").replace(" ", "")
            return "a100-80gb" if found == "a100" and "80GB" in printed else found
    return re.sub(r"[^a-z0-9]+", "-", printed.lower()).strip("-")


def parse_nvidia_smi(text: str) -> tuple[GpuFound, ...]:
    """Parse `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits`; memory is in MiB."""
    found = []
    for line in text.strip().splitlines():
        name, _, memory = line.rpartition(",")
        if name.strip():
            found.append(GpuFound(name=gpu_name(name), memory_gib=_gib(memory, _MIB_IN_GIB)))
    return tuple(found)


def parse_amd_smi(text: str) -> tuple[GpuFound, ...]:
    """Parse `amd-smi static --asic --vram --json`: a list, or one under `gpu_data`; memory is in MB."""
    document = json.loads(text)
    rows = document.get("gpu_data", []) if isinstance(document, dict) else document
    return tuple(_amd_gpu(row) for row in rows)


def parse_rocm_smi(text: str) -> tuple[GpuFound, ...]:
    """Parse `rocm-smi --showproductname --showmeminfo vram --json`; memory is in bytes."""
    cards: dict[str, dict[str, str]] = {name: row for name, row in json.loads(text).items() if name.startswith("card")}
    return tuple(
        GpuFound(
            name=gpu_name(row.get("Card Series") or row.get("Card series") or "amd gpu"),
            memory_gib=_gib(row.get("VRAM Total Memory (B)", "0"), _GIB),
        )
        for _, row in sorted(cards.items(), key=lambda card: int(card[0].removeprefix("card")))
    )


def _amd_gpu(row: dict[str, Any]) -> GpuFound:
    size = row.get("vram", {}).get("size", 0)
    value = size.get("value", 0) if isinstance(size, dict) else size
    return GpuFound(
        name=gpu_name(str(row.get("asic", {}).get("market_name", "amd gpu"))),
        memory_gib=_gib(str(value), _MIB_IN_GIB),
    )


_NVIDIA_ARGV = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_AMD_ARGV = ("amd-smi", "static", "--asic", "--vram", "--json")
_ROCM_ARGV = ("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")

_TOOLS: tuple[tuple[tuple[str, ...], Callable[[str], tuple[GpuFound, ...]]], ...] = (
    (_NVIDIA_ARGV, parse_nvidia_smi),
    (_AMD_ARGV, parse_amd_smi),
    (_ROCM_ARGV, parse_rocm_smi),
)


def _read_gpus() -> tuple[GpuFound, ...]:
    for argv, parse in _TOOLS:
        if found := _ask(argv, parse):
            return found
    return ()


def _ask(argv: tuple[str, ...], parse: Callable[[str], tuple[GpuFound, ...]]) -> tuple[GpuFound, ...]:
    """Run a tool; no GPUs if it is missing, hangs, fails or prints something else."""
    program = shutil.which(argv[0])
    if program is None:
        return ()
    try:
        done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=_TOOL_S, check=True)
        return parse(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError, TypeError):
        return ()


def _gib(number: str, per_gib: int) -> float:
    try:
        return round(float(number) / per_gib, 1)
    except ValueError:
        return 0.0  # `[N/A]` on computers whose GPU shares the memory


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
