"""Reads the GPUs' load from the vendors' tools. Parsing is pure; a value that a tool doesn't know is None, never 0."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from ..base.wire import Gpu
from .vendor_tools import ask_tool

_TIMEOUT_SECONDS = 10.0
_MIB = 1 << 20
_MIB_OF_UNIT = {"B": 1 / _MIB, "KB": 1 / 1024, "MB": 1.0, "GB": 1024.0, "KIB": 1 / 1024, "MIB": 1.0, "GIB": 1024.0}

_NVIDIA_FIELDS = "index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"
_NVIDIA = ("nvidia-smi", f"--query-gpu={_NVIDIA_FIELDS}", "--format=csv,noheader,nounits")
_AMD = ("amd-smi", "metric", "--json")
_ROCM = ("rocm-smi", "--showuse", "--showmeminfo", "vram", "--json")
_MEASURES = ("use_percent", "memory_used_mib", "memory_total_mib", "temperature_c", "power_w")


def read_gpus() -> tuple[Gpu, ...]:
    """Ask the installed vendor tools; empty if there is none, or none answers.

    In a virtual machine amd-smi may report a GPU's memory but not its use (error 43 of amdsmi_get_gpu_activity on
    MI300X with ROCm 7.0.2): then rocm-smi is asked for the missing values. fact: amd-smi-use-unknown-in-vm
    """
    nvidia = parse_nvidia_smi(ask_tool(_NVIDIA, timeout=_TIMEOUT_SECONDS))
    if nvidia:
        return nvidia
    amd = parse_amd_smi(ask_tool(_AMD, timeout=_TIMEOUT_SECONDS))
    if amd and all(_is_known(gpu) for gpu in amd):
        return amd
    return complete(amd, parse_rocm_smi(ask_tool(_ROCM, timeout=_TIMEOUT_SECONDS)))


def complete(gpus: tuple[Gpu, ...], others: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Fill in a GPU's unknown values from another tool's answer; only that answer if the first tool had none."""
    known = {other.index: other for other in others}
    return tuple(_filled(gpu, known.get(gpu.index)) for gpu in gpus) or others


def _is_known(gpu: Gpu) -> bool:
    return None not in (gpu.use_percent, gpu.memory_used_mib, gpu.memory_total_mib)


def _filled(gpu: Gpu, other: Gpu | None) -> Gpu:
    missing = [name for name in _MEASURES if getattr(gpu, name) is None]
    return gpu.replace(**{name: getattr(other, name) for name in missing}) if other else gpu


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """Parse CSV lines with the fields of our query; memory is in MiB."""
    rows = (line.split(",") for line in text.splitlines())
    # A name may contain a comma, so the fields are counted from the end.
    return tuple(
        Gpu(
            index=int(row[0]),
            name=",".join(row[1:-5]).strip(),
            use_percent=_number(row[-5]),
            memory_used_mib=_number(row[-4]),
            memory_total_mib=_number(row[-3]),
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
            use_percent=_number(row.get("GPU use (%)")),
            memory_used_mib=_mib(row.get("VRAM Total Used Memory (B)")),
            memory_total_mib=_mib(row.get("VRAM Total Memory (B)")),
        )
        for number, row in cards
        if _is_index(number) and isinstance(row, dict)
    )


def _load(text: str) -> object:
    """Parse JSON, also after warnings that a tool prints before it; None for anything else."""
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
        use_percent=_leaf(row, "usage", "gfx_activity"),
        memory_used_mib=_memory(row, "mem_usage", "used_vram"),
        memory_total_mib=_memory(row, "mem_usage", "total_vram"),
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


def _mib(leaf: object) -> float | None:
    found = _number(leaf)
    return None if found is None else found / _MIB


def _first(numbers: Iterable[float | None]) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _number(leaf: object) -> float | None:
    try:
        number = float(str(leaf).strip().removesuffix("%"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
