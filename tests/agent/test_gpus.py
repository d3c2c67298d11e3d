"""The output of vendors' tools is read in all of its forms, and no output breaks the sampler."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.base.record import to_json
from orchestrator.agent.base.wire import Gpu
from orchestrator.agent.gpu.gauges import parse_amd_smi, parse_nvidia_smi, parse_rocm_smi, read_gpus
from orchestrator.agent.gpu.vendor_tools import ask_tool, find_tool
from orchestrator.cli.drawing.status_line import load_words
from orchestrator.core.protocol.sample import Sample

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

# The same structure as real ones, with arbitrary values as leaves.
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
            (Gpu(0, use_percent=0.0, memory_used_mib=287.0, memory_total_mib=196592.0, power_w=136.0), Gpu(1)),
        ),
        ("rocm-smi.json", parse_rocm_smi, (CARD,)),
        ("rocm-smi-warning.txt", parse_rocm_smi, (CARD,)),
        (
            "nvidia-smi.csv",
            parse_nvidia_smi,
            (
                Gpu(0, "NVIDIA H100 80GB HBM3", 97.0, 71234.0, 81559.0, 64.0, 612.35),
                Gpu(1, "NVIDIA H100 80GB HBM3", None, 12.0, 81559.0, None, None),
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_recorded_output_of_real_machines_is_read(
    sample: str, parse: Callable[[str], tuple[Gpu, ...]], expected: tuple[Gpu, ...]
) -> None:
    """Both of amd-smi's forms, a GPU without figures, and a tool that prints a warning first."""
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
    """Text in bytes becomes MiB; entries that aren't cards are left out."""
    first, second = parse_rocm_smi(json.dumps(ROCM))
    assert (first.index, first.use_percent) == (0, 42)
    assert (first.memory_used_mib, first.memory_total_mib) == (298049536 / (1 << 20), 206141652992 / (1 << 20))
    assert (second.index, second.use_percent, second.memory_used_mib) == (1, None, None)


@given(_ANSWER)
def test_output_of_any_form_is_read_without_an_error(answer: Any) -> None:
    """Every GPU in the result has numbers that JSON can hold."""
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
def test_garbage_shows_no_gpu(garbage: str) -> None:
    """Whichever tool prints it."""
    assert [parse(garbage) for parse in PARSERS] == [(), (), ()]


def make_tools(folder: Path, **scripts: str) -> None:
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def test_gpu_use_that_amd_smi_does_not_know_comes_from_rocm_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a virtual machine amd-smi knows the memory, not the use: each figure comes from the tool that has it.

    fact: amd-smi-use-unknown-in-vm
    """
    row = {**AMD_ROW, "usage": {"gfx_activity": "N/A", "umc_activity": "N/A"}}
    older = json.dumps({"card0": {"GPU use (%)": "37", "VRAM Total Used Memory (B)": "1"}})
    make_tools(tmp_path, amd_smi=f"echo '{json.dumps([row])}'", rocm_smi=f"echo '{older}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (gpu,) = read_gpus()
    assert (gpu.use_percent, gpu.memory_used_mib, gpu.power_w) == (37, 101376, 553)


@pytest.mark.parametrize("older", ["exit 1", 'echo \'{"card0": {"GPU use (%)": "N/A"}}\''], ids=["fails", "N/A"])
def test_a_gpu_use_that_no_tool_knows_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: str) -> None:
    """It isn't 0 %, which would be an idle GPU; the status shows a question mark."""
    row = {**AMD_ROW, "usage": "N/A"}
    make_tools(tmp_path, amd_smi=f"echo '{json.dumps([row])}'", rocm_smi=older)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (gpu,) = read_gpus()
    assert (gpu.use_percent, gpu.memory_used_mib) == (None, 101376)
    sample = {"time": 1, "cpu_percent": 3, "memory_used_mib": 1, "memory_total_mib": 2, "gpus": [to_json(gpu)]}
    assert load_words(msgspec.convert(sample, Sample)) == "GPU ?"


@pytest.mark.parametrize(
    "place", ["opt/rocm/bin", "opt/rocm/core-7.14/bin", "opt/rocm/core-10.0/bin", "opt/rocm-6.4.1/bin"]
)
def test_a_vendors_tool_is_found_where_rocm_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """It is not on PATH: ROCm 7.12 and newer are in their own folder below /opt/rocm.

    fact: rocm-core-folder
    """
    make_tools(tmp_path / place, amd_smi="echo 'AMDSMI Tool: 1 | ROCm version: 7.14.0 |'")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find_tool("amd-smi", tmp_path) == str(tmp_path / place / "amd-smi")
    assert "7.14.0" in ask_tool(["amd-smi", "version"], tmp_path)
    assert ask_tool(["rocm-smi"], tmp_path) == ""


def test_the_newest_rocms_tool_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version numbers are compared, not texts: 7.12 is newer than 7.9. fact: rocm-core-folder."""
    for version in ("7.9", "7.12", "7.11"):
        make_tools(tmp_path / f"opt/rocm/core-{version}/bin", amd_smi="true")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert find_tool("amd-smi", tmp_path) == str(tmp_path / "opt/rocm/core-7.12/bin/amd-smi")


def test_the_older_tool_is_asked_where_the_newer_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An amd-smi that exits with an error, as on a machine without its driver, is ignored."""
    make_tools(tmp_path, amd_smi="exit 1", rocm_smi=f"cat '{SAMPLES}/rocm-smi.json'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert read_gpus() == (CARD,)
