"""The agent's pure parts: lines, times, money, and what vendors' tools print."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.cost import render_cost
from orchestrator.agent.gpus import parse_amd_smi, parse_nvidia_smi, parse_rocm_smi
from orchestrator.agent.runlog import LineSplitter, RunLog
from orchestrator.agent.sampling import append_bounded
from orchestrator.agent.timetable import plan_timetable

NVIDIA = """\
0, NVIDIA H100 80GB HBM3, 97, 71234, 81559, 64, 612.35
1, NVIDIA H100 80GB HBM3, [N/A], 12, 81559, [Not Supported], [N/A]
"""
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


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_don_t_depend_on_how_the_stream_is_cut(parts: list[bytes], limit: int) -> None:
    """The same bytes give the same lines, whether they come at once or in pieces, and none is too long."""
    whole, piecewise = LineSplitter(), LineSplitter()
    stream = b"".join(parts)
    expected = whole.feed(stream) + whole.finish()
    assert [line for part in parts for line in piecewise.feed(part)] + piecewise.finish() == expected
    assert b"".join(expected) == re.sub(rb"[\r\n]", b"", stream)
    bounded = LineSplitter(limit)
    pieces = bounded.feed(stream) + bounded.finish()
    assert all(len(piece) <= limit for piece in pieces[:-1])
    assert b"".join(pieces) == b"".join(expected)


def test_a_line_that_a_kill_has_torn_does_not_swallow_the_next(tmp_path: Path) -> None:
    """Whoever opens the log after a kill begins a line of its own."""
    (tmp_path / "run.log").write_bytes(b"2026-11-21T11:48:05Z torn in the mid")
    RunLog(tmp_path / "run.log").remark("started, attempt 2 of 4")
    first, second = (tmp_path / "run.log").read_text().splitlines()
    assert first.endswith("torn in the mid")
    assert second.endswith("Z [kedge] started, attempt 2 of 4")


def test_lines_that_were_lost_on_a_full_disk_are_counted(tmp_path: Path) -> None:
    """When there is room again, the log says how many are missing."""
    path = tmp_path / "run.log"
    path.symlink_to("/dev/full")
    log = RunLog(path)
    log.lines([b"1", b"2"])
    log.lines([b"3"])
    path.unlink()
    log.lines([b"4"])
    assert [line.split(" ", 1)[1] for line in path.read_text().splitlines()] == [
        "[kedge] 3 lines were lost: the disk was full",
        "4",
    ]


def test_samples_never_fill_the_disk(tmp_path: Path) -> None:
    """A full file becomes the one before, and there is never a third."""
    for number in range(100):
        append_bounded(tmp_path / "samples.jsonl", b"%04d\n" % number, 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.1.jsonl", "samples.jsonl"]
    kept = (tmp_path / "samples.1.jsonl").read_text() + (tmp_path / "samples.jsonl").read_text()
    assert kept.splitlines() == [f"{number:04d}" for number in range(80, 100)]


def test_nvidia_smi_is_read() -> None:
    """Memory in MiB; what a card doesn't know is None or zero."""
    first, second = parse_nvidia_smi(NVIDIA)
    assert (first.name, first.use_percent, first.memory_used_mib) == ("NVIDIA H100 80GB HBM3", 97, 71234)
    assert (first.memory_total_mib, first.temperature_c, first.power_w) == (81559, 64, 612.35)
    assert (second.index, second.use_percent, second.temperature_c, second.power_w) == (1, 0, None, None)


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


@pytest.mark.parametrize(
    ("seconds", "usd_per_hour", "said"),
    [
        (9000, "1.99", "Session: 2.5h elapsed, ~$4.98 spent"),
        (0, "0", "Session: 0.0h elapsed, ~$0.00 spent"),
        (180, "0.10", "Session: 0.1h elapsed, ~$0.01 spent"),
        (360000, "27.50", "Session: 100.0h elapsed, ~$2750.00 spent"),
    ],
)
def test_the_cost_is_exact(seconds: float, usd_per_hour: str, said: str) -> None:
    """Halves are rounded up, in hours and in cents."""
    assert render_cost(seconds, Decimal(usd_per_hour)) == said


@pytest.mark.parametrize(
    ("lifetime", "grace", "stop", "last_ship"),
    [(7200, 60, 7080, 7140), (3600, 60, 3480, 3540), (600, 60, 510, 570), (60, 60, 30, 57), (4, 60, 2, 3)],
)
def test_the_way_to_the_deadline_leaves_time_to_save_and_to_ship(
    lifetime: float, grace: float, stop: float, last_ship: float
) -> None:
    """Grace and shipping come off the end, but never more than half of a short life."""
    planned = plan_timetable(1000.0, 1000.0 + lifetime, grace)
    assert (planned.stop, planned.last_ship, planned.end) == (1000 + stop, 1000 + last_ship, 1000 + lifetime)
