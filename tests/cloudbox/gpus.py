"""The GPUs of the box's machines: a stand-in for the torch that drives them, with faults to order.

It lies where Debian's own Python finds it. The images' `/opt/pytorch` has a real torch, which sees no GPU: a burn-in
takes the stand-in, and a job that trains with the real one says `KEDGE_TORCH_WHEEL: none`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.agent.standin import render_files

_SITE = "/usr/lib/python3/dist-packages"


class GpuFaults:
    """What is wrong with the GPUs of the next machines; whoever changes it holds the box's lock."""

    def __init__(self) -> None:
        self._next: list[str] = []

    def order(self, fault: str) -> None:
        """Let the next machine with GPUs have a fault: `matmul:0`, `memory:0`, `crash` or `hang`."""
        self._next.append(fault)

    def reset(self) -> None:
        """Forget the faults that no machine has had."""
        self._next.clear()

    def render_torch(self, gpus: int, model: Mapping[str, str]) -> dict[str, str]:
        """Return the stand-in's files on a machine: absolute path -> text; none without GPUs."""
        if gpus == 0:
            return {}
        fault = self._next.pop(0) if self._next else ""
        files = render_files(**model, gpus=gpus, fault=fault)
        return {f"{_SITE}/{name}": content.decode() for name, content in files.items()}
