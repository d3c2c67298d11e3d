"""Samples the machine's load: the newest sample in its own file, all of them as JSON lines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ..base.files import write_json
from ..base.layout import Layout
from ..base.record import to_json
from ..base.runlog import open_log
from ..base.wire import MachineConfig, Sample
from ..gpu.gauges import read_gpus
from .report import size_of

LIMIT_BYTES = 8 << 20
_MIB = 1 << 20


class CpuMeter:
    """Measures the use of all cores between two calls."""

    def __init__(self) -> None:
        self._before = read_cpu_times()

    def percent(self) -> float:
        """Return 0 to 100, since the last call; from the load average if there is no /proc."""
        now = read_cpu_times()
        if now is None or self._before is None:
            return min(100.0, 100.0 * os.getloadavg()[0] / (os.cpu_count() or 1))
        busy, total = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        return round(100.0 * busy / total, 1) if total > 0 else 0.0


class Sampler:
    """Takes one sample per step."""

    def __init__(self, layout: Layout, machine: MachineConfig) -> None:
        self._layout = layout
        self._cpu = CpuMeter()
        # The vendors' tools may be in folders that only the command's PATH has.
        os.environ["PATH"] = os.pathsep.join([*machine.path, os.environ.get("PATH", os.defpath)])

    def step(self) -> None:
        """Take a sample and write it."""
        used, total = read_memory_mib()
        sample = to_json(
            Sample(
                time=time.time(),
                cpu_percent=self._cpu.percent(),
                memory_used_mib=used,
                memory_total_mib=total,
                gpus=read_gpus(),
            )
        )
        write_json(self._layout.note("sample"), sample)
        append_bounded(self._layout.samples_file, json.dumps(sample).encode() + b"\n", LIMIT_BYTES)


def append_bounded(path: Path, line: bytes, limit: int) -> None:
    """Append a line; rotate the file when it is full, keeping one older file."""
    if size_of(path) + len(line) > limit:
        path.replace(path.with_name(f"{path.stem}.1{path.suffix}"))
    with open(open_log(path), "ab", buffering=0) as stream:  # noqa: PTH123 - a descriptor, not a path
        stream.write(line)


def read_cpu_times() -> tuple[int, int] | None:
    """Return busy and total ticks of all cores since boot; None if there is no /proc."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return None
    # user nice system idle iowait irq softirq steal; guest time is part of user (man 5 proc).
    ticks = [int(number) for number in first.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def read_memory_mib() -> tuple[float, float]:
    """Return used and total memory; memory that is available without swapping counts as free."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0.0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MIB
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if ":" in line}
    total = kib.get("MemTotal", 0) / 1024
    return round(total - kib.get("MemAvailable", 0) / 1024, 1), round(total, 1)
