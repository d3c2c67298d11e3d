"""Waits for a new machine's GPUs, whose device nodes appear one by one while the driver loads."""

from __future__ import annotations

import sys
from pathlib import Path

from ..base.polling import poll_until
from .accelerators import find_architectures
from .vendor_tools import ask_tool, find_tool

WAIT_SECONDS = 120.0
"""How long GPUs may be missing after boot: their nodes appear when the driver has loaded, while services start.

fact: gpu-nodes-come-late
"""

_AGAIN_SECONDS = 2.0
_KERNEL = "sys/class/kfd"
_RENDER_NODES = "dev/dri/renderD*"
# If one of these exists, a driver is loaded, or will be.
_SIGNS_OF_AMD = (_KERNEL, "dev/kfd", "sys/module/amdgpu", "opt/rocm", "opt/rocm-*")
_NVIDIA = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")


def await_gpus(gpus: int, *, root: Path = Path("/"), seconds: float = WAIT_SECONDS) -> int:
    """Wait until the driver shows all GPUs, and return how many it shows.

    Without any sign of a driver it doesn't wait. The burn-in reports GPUs that are still missing.
    """
    has_driver = any(any(root.glob(sign)) for sign in _SIGNS_OF_AMD) or find_tool(_NVIDIA[0], root) is not None
    shown = count_gpus(root)
    if shown >= gpus or not has_driver:
        return shown
    sys.stderr.write(f"kedge-agent, torch: {shown} of {gpus} GPUs are visible: waiting up to {seconds:g} s\n")
    poll_until(lambda: count_gpus(root) >= gpus, seconds=seconds, every=_AGAIN_SECONDS)
    return count_gpus(root)


def count_gpus(root: Path = Path("/")) -> int:
    """Count the GPUs that drivers show: AMD's in the kernel's topology, or as nodes if a container hides that."""
    if (root / _KERNEL).exists():
        amd = len(find_architectures(root))
    else:
        amd = len(list(root.glob(_RENDER_NODES))) if (root / "dev/kfd").exists() else 0
    return amd or sum(line.strip().isdigit() for line in ask_tool(_NVIDIA, root).splitlines())
