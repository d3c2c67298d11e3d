"""A new machine's GPUs come one after the other: the driver makes their nodes while the machine boots."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .accelerators import find_architectures
from .vendortools import ask_tool, find_tool

PATIENCE_SECONDS = 120.0
"""How long GPUs that were ordered may be missing: their nodes come when the driver has loaded, while services start.

fact: gpu-nodes-come-late
"""

_AGAIN_SECONDS = 2.0
_KERNEL = "sys/class/kfd"
_RENDER_NODES = "dev/dri/renderD*"
# Whatever of these is there: a driver is at work, or will be.
_SIGNS_OF_AMD = (_KERNEL, "dev/kfd", "sys/module/amdgpu", "opt/rocm", "opt/rocm-*")
_NVIDIA = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader")


def await_gpus(gpus: int, *, root: Path = Path("/"), patience: float = PATIENCE_SECONDS) -> int:
    """Wait until a driver shows all GPUs that were ordered, and return how many it shows.

    Where there is no sign of a driver nothing is waited for; what isn't there in the end, the burn-in tells.
    """
    give_up = time.monotonic() + patience
    has_driver = any(any(root.glob(sign)) for sign in _SIGNS_OF_AMD) or find_tool(_NVIDIA[0], root) is not None
    is_told = False
    while (shown := count_gpus(root)) < gpus and has_driver and time.monotonic() < give_up:
        if not is_told:
            is_told = True
            sys.stderr.write(f"kedge-agent, torch: {shown} of {gpus} GPUs are there: waiting up to {patience:g} s\n")
        time.sleep(_AGAIN_SECONDS)
    return shown


def count_gpus(root: Path = Path("/")) -> int:
    """Count what the drivers show: AMD's in the kernel's topology, or as nodes where a container hides that."""
    if (root / _KERNEL).exists():
        amd = len(find_architectures(root))
    else:
        amd = len(list(root.glob(_RENDER_NODES))) if (root / "dev/kfd").exists() else 0
    return amd or sum(line.strip().isdigit() for line in ask_tool(_NVIDIA, root).splitlines())
