"""What vendors' tools print is read in every shape that they have, and nothing that they print breaks the sampler."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.gpus import parse_amd_smi, parse_nvidia_smi, parse_rocm_smi, read_gpus
from orchestrator.agent.wire import Gpu

SAMPLES = Path(__file__).parent / "samples"
PARSERS = (parse_nvidia_smi, parse_amd_smi, parse_rocm_smi)
CARD = Gpu(index=0, use_percent=0.0, memory_used_mib=26.56640625, memory_total_mib=20464.0)

AMD_ROW = {
    "gpu": 0,
    "usage": {"gfx_activity": {"value": 88, "unit": "%"}, "umc_activity": {"value": 31, "unit": "%"}},
    "power": {"socket_power": {"value": 553, "unit": "W"}, "gfx_voltage": "N/A"},
    "temperature": {"edge": "N/A", "hotspot": {"value": 61, "unit": "C"}, "mem": {"value": 49, "unit": "C"}},
    "mem_usage": {
        "total_vram": {"value": 196592, "unit": "MB"},
        "used_vram": {"value": 101376, "unit": "MB"},
        "free_vram": {"value": 95216, "unit": "MB"},
    },
}
AMD_BARE_ROW = {
    "gpu": 1,
    "usage": {"gfx_activity": 5},
    "power": "N/A",
    "temperature": {"hotspot": "N/A", "edge": 40},
    "mem_usage": {"total_vram": {"value": 192, "unit": "GiB"}, "used_vram": 287},
}
ROCM = {
    "card0": {"GPU use (%)": "42", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "298049536"},
    "card1": {"GPU use (%)": "N/A", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "N/A"},
    "system": {"Driver version": "6.8.5"},
}

# Objects like the real ones, with anything at all for leaves.
_LEAF = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5), st.just("N/A"))
_VALUE = st.one_of(
    _LEAF, st.fixed_dictionaries({}, optional={"value": _LEAF, "unit": _LEAF}), st.lists(_LEAF, max_size=2)
)
_GROUP = st.one_of(
    _VALUE,
    st.dictionaries(st.sampled_from(["gfx_activity", "used_vram", "total_vram", "hotspot", "socket_power"]), _VALUE),
)
_ROW = st.one_of(
    _LEAF,
    st.dictionaries(
        st.sampled_from(["gpu", "usage", "mem_usage", "temperature", "power", "GPU use (%)", "VRAM Total Memory (B)"]),
        _GROUP,
    ),
)
_ANSWER = st.one_of(
    _LEAF,
    st.lists(_ROW, max_size=3),
    st.fixed_dictionaries({"gpu_data": st.one_of(_LEAF, st.lists(_ROW, max_size=3))}),
    st.dictionaries(st.sampled_from(["card0", "card1", "cardX", "card-1", "system"]), _ROW),
)


@pytest.mark.parametrize(
    ("sample", "parse", "expected"),
    [
        ("amd-smi-list.json", parse_amd_smi, (Gpu(index=0, use_percent=42.0),)),
        (
            "amd-smi-gpu-data.json",
            parse_amd_smi,
            (Gpu(0, "", use_percent=2.0, memory_used_mib=14569.0, memory_total_mib=16368.0, temperature_c=41.0),),
        ),
        (
            "amd-smi-partitions.json",
            parse_amd_smi,
            (Gpu(0, memory_used_mib=287.0, memory_total_mib=196592.0, power_w=136.0), Gpu(1)),
        ),
        ("rocm-smi.json", parse_rocm_smi, (CARD,)),
        ("rocm-smi-warning.txt", parse_rocm_smi, (CARD,)),
        (
            "nvidia-smi.csv",
            parse_nvidia_smi,
            (
                Gpu(0, "NVIDIA H100 80GB HBM3", 97.0, 71234.0, 81559.0, 64.0, 612.35),
                Gpu(1, "NVIDIA H100 80GB HBM3", 0.0, 12.0, 81559.0, None, None),
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_real_machines_have_printed_is_read(
    sample: str, parse: Callable[[str], tuple[Gpu, ...]], expected: tuple[Gpu, ...]
) -> None:
    """Both of amd-smi's shapes, a GPU that tells nothing of itself, and a tool that warns before it answers."""
    assert parse((SAMPLES / sample).read_text()) == expected


@pytest.mark.parametrize("shape", ["list", "gpu_data"])
def test_amd_smi_is_read_in_both_shapes(shape: str) -> None:
    """A list or an object, and leaves with or without their unit."""
    rows = [AMD_ROW, AMD_BARE_ROW]
    first, second = parse_amd_smi(json.dumps(rows if shape == "list" else {"gpu_data": rows}))
    assert (first.index, first.use_percent, first.memory_used_mib, first.memory_total_mib) == (0, 88, 101376, 196592)
    assert (first.temperature_c, first.power_w) == (61, 553)
    assert (second.index, second.use_percent, second.memory_used_mib, second.memory_total_mib) == (1, 5, 287, 196608)
    assert (second.temperature_c, second.power_w) == (40, None)


def test_rocm_smi_is_read() -> None:
    """Text in bytes becomes MiB; what isn't a card is left out."""
    first, second = parse_rocm_smi(json.dumps(ROCM))
    assert (first.index, first.use_percent) == (0, 42)
    assert (round(first.memory_used_mib), round(first.memory_total_mib)) == (284, 196592)
    assert (second.index, second.use_percent, second.memory_used_mib) == (1, 0, 0)


@given(_ANSWER)
def test_an_answer_of_any_form_is_read_without_an_error(answer: Any) -> None:
    """Every GPU that is made of it has numbers that JSON can carry."""
    for parse in (parse_amd_smi, parse_rocm_smi):
        for gpu in parse(json.dumps(answer)):
            numbers = (gpu.use_percent, gpu.memory_used_mib, gpu.memory_total_mib, gpu.temperature_c, gpu.power_w)
            assert all(number is None or math.isfinite(number) for number in numbers)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "null",
        "7",
        "[]",
        "{}",
        "not JSON",
        "[" * 100_000,
        '{"gpu_data": null}',
        "No devices were found\n",
        ",,,,,,,",
    ],
    ids=lambda text: text[:20].strip() or "nothing",
)
def test_garbage_is_no_gpu(garbage: str) -> None:
    """Whatever tool it comes from."""
    assert [parse(garbage) for parse in PARSERS] == [(), (), ()]


def test_the_older_tool_is_asked_where_the_newer_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An amd-smi that ends with an error, as on a machine without its driver, is as good as none."""
    for name, script in (("amd-smi", "exit 1"), ("rocm-smi", f"cat '{SAMPLES}/rocm-smi.json'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert read_gpus() == (CARD,)
