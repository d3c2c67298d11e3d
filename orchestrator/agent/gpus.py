"""What GPUs do now, from the vendors' own tools. Parsing is pure; values that a tool doesn't know are left out."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

from .wire import Gpu

_TIMEOUT_SECONDS = 10.0
_MIB = 1 << 20
_MIB_OF_UNIT = {"B": 1 / _MIB, "KB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "KIB": 1 / 1024, "MIB": 1.0, "GIB": 1024.0}

_NVIDIA_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"
_NVIDIA = ("nvidia-smi", f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader,nounits")
_AMD = ("amd-smi", "metric", "--json")
_ROCM = ("rocm-smi", "--showuse", "--showmeminfo", "vram", "--json")


def read_gpus() -> tuple[Gpu, ...]:
    """Ask the first tool that is here and answers; empty where there is none."""
    for argv, parse in _TOOLS:
        if shutil.which(argv[0]) is not None:
            gpus = _ask(argv, parse)
            if gpus:
                return gpus
    return ()


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Parse CSV lines with the fields of our query; memory is in MiB."""
    rows = (line.split(",") for line in text.splitlines())
    # A name may hold a comma: the numbers are counted from the end.
    return tuple(
        Gpu(
            index=int(row[0]),
            name=",".join(row[1:-5]).strip(),
            use_percent=_number(row[-5]) or 0.0,
            memory_used_mib=_number(row[-4]) or 0.0,
            memory_total_mib=_number(row[-3]) or 0.0,
            temperature_c=_number(row[-2]),
            power_w=_number(row[-1]),
        )
        for row in rows
        if len(row) >= 7 and _is_index(row[0].strip())
    )


def parse_amd_smi(text: str) -> tuple[Gpu, ...]:
    """Parse `amd-smi metric --json`: a list, or {gpu_data: [...]}; leaves are values or {value, unit}."""
    content = _load(text)
    rows = content.get("gpu_data") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        return ()
    return tuple(_amd_gpu(number, row) for number, row in enumerate(rows) if isinstance(row, dict))


def parse_rocm_smi(text: str) -> tuple[Gpu, ...]:
    """Parse `rocm-smi --showuse --showmeminfo vram --json`: {card0: {label: text}}; memory is in bytes."""
    content = _load(text)
    if not isinstance(content, dict):
        return ()
    cards = [(name.removeprefix("card"), row) for name, row in content.items() if name.startswith("card")]
    return tuple(
        Gpu(
            index=int(number),
            use_percent=_number(row.get("GPU use (%)")) or 0.0,
            memory_used_mib=(_number(row.get("VRAM Total Used Memory (B)")) or 0.0) / _MIB,
            memory_total_mib=(_number(row.get("VRAM Total Memory (B)")) or 0.0) / _MIB,
        )
        for number, row in cards
        if _is_index(number) and isinstance(row, dict)
    )


def _load(text: str) -> object:
    """Parse JSON, or what follows the warnings that a tool has printed before it; None for anything else."""
    start = min((at for at in (text.find("["), text.find("{")) if at >= 0), default=0)
    try:
        return json.loads(text[start:])
    except (ValueError, RecursionError):
        return None


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _amd_gpu(number: int, row: dict[str, Any]) -> Gpu:
    index = _number(row.get("gpu"))
    return Gpu(
        index=number if index is None else int(index),
        use_percent=_leaf(row, "usage", "gfx_activity") or 0.0,
        memory_used_mib=_memory(row, "mem_usage", "used_vram") or 0.0,
        memory_total_mib=_memory(row, "mem_usage", "total_vram") or 0.0,
        temperature_c=_first(_leaf(row, "temperature", name) for name in ("hotspot", "edge", "mem")),
        power_w=_first(_leaf(row, "power", name) for name in ("socket_power", "average_socket_power")),
    )


def _leaf(row: dict[str, Any], group: str, name: str) -> float | None:
    found = row.get(group)
    leaf = found.get(name) if isinstance(found, dict) else None
    return _number(leaf.get("value") if isinstance(leaf, dict) else leaf)


def _memory(row: dict[str, Any], group: str, name: str) -> float | None:
    """Return MiB; amd-smi's MB are MiB."""
    found = _leaf(row, group, name)
    leaf = row[group].get(name) if found is not None else None
    unit = str(leaf.get("unit", "MB")) if isinstance(leaf, dict) else "MB"
    return None if found is None else found * _MIB_OF_UNIT.get(unit.upper(), 1.0)


def _first(numbers: Iterable[float | None]) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _number(leaf: object) -> float | None:
    try:
        number = float(str(leaf).strip().removesuffix("%"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


_TOOLS: tuple[tuple[tuple[str, ...], Callable[[str], tuple[Gpu, ...]]], ...] = (
    (_NVIDIA, parse_nvidia_smi),
    (_AMD, parse_amd_smi),
    (_ROCM, parse_rocm_smi),
)


def _ask(argv: tuple[str, ...], parse: Callable[[str], tuple[Gpu, ...]]) -> tuple[Gpu, ...]:
    try:
        answer = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_SECONDS, check=True
        )
        return parse(answer.stdout.decode(errors="replace"))
    except (OSError, subprocess.SubprocessError):
        return ()
