"""The GPUs of the box's machines: a stand-in for torch on GPUs, with faults that tests can order.

Debian's own Python imports it. The images' `/opt/pytorch` has a real torch, which sees no GPU: a burn-in uses the
stand-in, and a job that trains with the real torch sets `KEDGE_TORCH_WHEEL: none`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.agent.standin import render_installed
from tests.cloudbox.machines.first_boot import FABRIC_UP, NODES_UP, FirstBoot, Image, render_image

_SITE = "/usr/lib/python3/dist-packages"


class Images:
    """The faults and the first boot of the next machines; callers that change them hold the box's lock."""

    def __init__(self) -> None:
        self._faults: list[str] = []
        self._first = FirstBoot()

    def break_gpu(self, fault: str) -> None:
        """Give the next machine with GPUs a fault: `matmul:0`, `memory:0`, `crash` or `hang`."""
        self._faults.append(fault)

    def change_first_boot(self, switches: Mapping[str, Any]) -> None:
        """Set some fields of `FirstBoot` for the next machines."""
        self._first = replace(self._first, **switches)

    def reset(self) -> None:
        """Return to the default first boot, and drop the faults that no machine has had."""
        self._faults.clear()
        self._first = FirstBoot()

    @property
    def local_disk_gib(self) -> int:
        """The size of the next machine's local disk; 0 for none."""
        return self._first.local_disk_gib

    def render(self, gpus: int, model: Mapping[str, str]) -> Image:
        """Return the contents of the next machine's image."""
        if gpus == 0:
            return render_image(self._first)
        image = render_image(self._first, nodes=_nodes(gpus, model))
        return replace(image, files={**image.files, **self._render_torch(gpus, model), **_render_smi(gpus, model)})

    def _render_torch(self, gpus: int, model: Mapping[str, str]) -> dict[str, str]:
        waits = [(_nodes(gpus, model)[-1], self._first.nodes_seconds)]
        if not _is_amd(model):
            waits.append((FABRIC_UP, self._first.torch_seconds))
        files = render_installed(
            **model,
            gpus=gpus,
            fault=self._faults.pop(0) if self._faults else "",
            needs=[path for path, seconds in waits if seconds],
            import_seconds=self._first.import_seconds,
        )
        return {f"{_SITE}/{name}": content.decode() for name, content in files.items()}


def _is_amd(model: Mapping[str, str]) -> bool:
    return "rocm" in model["version"]


def _nodes(gpus: int, model: Mapping[str, str]) -> tuple[str, ...]:
    if _is_amd(model):
        return ("/dev/kfd", *(f"/dev/dri/renderD{128 + index}" for index in range(gpus)))
    return ("/dev/nvidiactl", *(f"/dev/nvidia{index}" for index in range(gpus)))


def _render_smi(gpus: int, model: Mapping[str, str]) -> dict[str, str]:
    """Return the files that show a driver. nvidia-smi shows GPUs as soon as they exist, before CUDA can use them."""
    if _is_amd(model):
        return {"/opt/rocm/.info/version": "7.0.2\n"}
    return {"/usr/bin/nvidia-smi": _NVIDIA_SMI.format(gpus=gpus, name=model["name"], nodes_up=NODES_UP)}


_NVIDIA_SMI = """\
#!/usr/bin/python3 -IS
import os, sys
if not os.path.exists({nodes_up!r}):
    sys.exit("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
KNOWN = {{"name": {name!r}, "utilization.gpu": 0, "memory.used": 1, "memory.total": 15360, "temperature.gpu": 30,
         "power.draw": 27.5, "uuid": "GPU-0", "driver_version": "570.86"}}
query = next((one.partition("=")[2] for one in sys.argv if one.startswith("--query-gpu=")), "")
if not query:
    print("| NVIDIA-SMI 570.86        Driver Version: 570.86        CUDA Version: 12.8 |")
for index in range({gpus} if query else 0):
    print(", ".join(str(index if name == "index" else KNOWN.get(name, "[N/A]")) for name in query.split(",")))
"""
