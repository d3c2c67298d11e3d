"""A sample of a machine's load, as its agent reports it.

The agent writes the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.protocol.decoding import Count, Instant, Name, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's current load. None: its tool doesn't report the value, which doesn't mean that the GPU is idle."""

    index: Count
    name: Name = ""
    use_percent: Quantity | None = None
    memory_used_mib: Quantity | None = None
    memory_total_mib: Quantity | None = None
    temperature_c: Quantity | None = None
    power_w: Quantity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The machine's load at one instant.

    Attributes:
        time: Unix seconds.
        cpu_percent: of all cores together, 0 to 100.
    """

    time: Instant
    cpu_percent: Quantity
    memory_used_mib: Quantity
    memory_total_mib: Quantity
    gpus: tuple[Gpu, ...] = ()
