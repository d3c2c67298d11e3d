"""Stands in for a GPU build of torch where there is no GPU: what `torch_check.py` calls, with faults to order.

A real torch can't be told to see GPUs that aren't there. A tensor is one number, of which all its elements consist.
`machine.json` beside this file is the machine: {"version", "name", "arch", "gpus", "fault", "needs", "import_seconds"}.
A fault is `matmul:2` or `memory:2` (of the third GPU), `crash`, or `hang`. Until all paths in `needs` exist, no GPU can
be used: as before the fabric manager is up, GPUs are counted but unavailable, until the process ends. The first
import takes `import_seconds`, later ones are quick.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_MACHINE = json.loads(Path(__file__).with_name("machine.json").read_text())
_FAULT = _MACHINE.get("fault", "")
_IMPORTED = Path(tempfile.gettempdir(), "torch-stand-in-was-imported")

if _MACHINE.get("import_seconds") and not _IMPORTED.exists():
    time.sleep(_MACHINE["import_seconds"])
    _IMPORTED.touch()

__version__ = _MACHINE["version"]
version = SimpleNamespace(
    hip="6.4.43482" if "rocm" in __version__ else None, cuda="12.8" if "+cu" in __version__ else None
)
bfloat16 = int64 = None


def main() -> None:
    """Stand in for torchrun: print which Python runs it."""
    sys.stdout.write(f"torchrun of {sys.prefix}\n")


class Tensor:
    def __init__(self, value: float, size: int, device: str) -> None:
        self.value, self.size, self.device = value, size, device

    def to(self, device: Any) -> Tensor:
        return Tensor(self.value, self.size, device or self.device)

    def cpu(self) -> Tensor:
        return Tensor(self.value, self.size, "cpu")

    def double(self) -> Tensor:
        return self

    abs = max = min = double

    def __getitem__(self, _index: object) -> Tensor:
        return self

    def item(self) -> float:
        return self.value

    def __sub__(self, other: Tensor) -> Tensor:
        return Tensor(self.value - other.value, self.size, self.device)

    def __matmul__(self, other: Tensor) -> Tensor:
        off = 64 if f"matmul:{self.device.removeprefix('cuda:')}" == _FAULT else 0
        return Tensor(self.value * other.value * self.size + off, self.size, self.device)


def randn(size: int, _columns: int, generator: object) -> Tensor:
    return Tensor(1.0, size, "cpu")


def ones(size: int, _columns: int, dtype: object, device: str) -> Tensor:
    return Tensor(1.0, size, device)


def full(shape: tuple[int], value: int, dtype: object, device: str) -> Tensor:
    return Tensor(value ^ (f"memory:{device.removeprefix('cuda:')}" == _FAULT), shape[0], device)


class Generator:
    def manual_seed(self, _seed: int) -> Generator:
        return self


class cuda:  # noqa: N801 - as torch names it
    @staticmethod
    def device_count() -> int:
        # NVML counts NVIDIA's GPUs; ROCm counts those that it can open.
        return 0 if version.hip and not cuda.is_available() else int(_MACHINE["gpus"])

    @staticmethod
    @functools.cache
    def is_available() -> bool:
        lacks = [path for path in _MACHINE.get("needs", ()) if not Path(path).exists()]
        if lacks:
            # cudaGetDeviceCount's answer, which is_available warns of; NVML counts the GPUs all the same.
            sys.stderr.write("UserWarning: CUDA initialization: Error 802: system not yet initialized\n")
        return bool(_MACHINE["gpus"]) and not lacks

    @staticmethod
    def get_device_properties(_index: int) -> SimpleNamespace:
        # NVIDIA's are named by their compute capability: sm_75 is 7.5.
        major, minor = _MACHINE["arch"].removeprefix("sm_") if _MACHINE["arch"].startswith("sm_") else "94"
        return SimpleNamespace(gcnArchName=f"{_MACHINE['arch']}:sramecc+:xnack-", major=int(major), minor=int(minor))

    @staticmethod
    def get_device_name(_device: str) -> str:
        return str(_MACHINE["name"])

    @staticmethod
    def mem_get_info(_device: str) -> tuple[int, int]:
        return 190 << 30, 192 << 30

    @staticmethod
    def synchronize(_device: str) -> None:
        if _FAULT == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if _FAULT == "hang":
            time.sleep(600)
