"""Finds the Python whose torch sees this machine's GPUs: the image's, else a new environment.

The image's Python is never changed: if its torch doesn't see the GPUs, or is only in a container, a virtual environment
is made at `<root>/torch`, and put first on the command's PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import Layout
from ..base.polling import poll_until
from ..base.record import Record, to_json
from ..base.wire import MachineConfig
from ..gpu.accelerators import find_accelerators
from ..gpu.variables import OVERRIDE
from ..gpu.wait import await_gpus
from .torch_install import INSTALL_FIX, make_torch
from .wheels import choose_index

CHECK = Path(__file__).with_name("torch_check.py")
"""The program that a Python runs to probe its torch."""

NO_TORCH = "none"
"""In place of a wheel's tag: the job needs no torch, so none is searched for, and GPUs aren't checked with it."""

IMPORT_SECONDS = 180.0
"""How long importing torch may take: it reads gigabytes, and the disk may still be loading from a snapshot.

fact: cold-volume
"""

FABRIC_SECONDS = 120.0
"""How long torch may see none of nvidia-smi's GPUs: CUDA returns error 802 until the fabric manager is up."""

_AGAIN_SECONDS = 3.0


class Torch(Record):
    """A Python's torch.

    Attributes:
        python: the interpreter.
        torch: its version.
        archs: architectures of the GPUs that it sees, such as gfx942 or sm_90.
        made: whether it is in the environment that was made here.
        index: the index that it was installed from; empty for the image's own.
        cuda: the CUDA version that it was built for; empty for ROCm and CPU builds.
    """

    python: str
    torch: str
    archs: tuple[str, ...] = ()
    made: bool = False
    index: str = ""
    cuda: str = ""

    @property
    def folder(self) -> str:
        """The folder to put first on the command's PATH."""
        return str(Path(self.python).parent)

    @property
    def key(self) -> str:
        """The key of the kernel cache: compiled kernels fit one architecture and one torch only."""
        return f"{self.archs[0] if self.archs else 'cpu'}-{self.torch}".replace("+", "-")


def read_torch(layout: Layout) -> Torch | None:
    """Read what `ensure_torch` has found or made; None if it hasn't run."""
    content = read_json(layout.note("torch"))
    return _build(content) if content.get("python") else None


def ensure_torch(
    layout: Layout, machine: MachineConfig, wheel: str = "", *, gpus: int = 1, fabric_seconds: float = FABRIC_SECONDS
) -> Torch | None:
    """Find a torch that sees a GPU, or install one, and record it; None if the driver itself shows no GPU.

    Args:
        layout: the machine's folder.
        machine: its `path` has the image's Python with torch.
        wheel: the tag or index to install torch from, if necessary; empty: chosen for the machine.
        gpus: how many GPUs the machine should have; waits a while for them.
        fabric_seconds: how long torch may see none of nvidia-smi's GPUs.

    Raises:
        RequestError: `wheel` is neither a tag nor an index.
        AgentError: torch can't be installed, or the installed one doesn't see a GPU.
    """
    before = read_torch(layout)
    layout.note("torch").unlink(missing_ok=True)
    await_gpus(gpus)
    torch, is_for_cuda = _find(layout, machine)
    if torch is None:
        accelerators = find_accelerators()
        if not accelerators.archs and not accelerators.cuda:
            # Installing torch takes minutes and wouldn't change that.
            return None
        if is_for_cuda and accelerators.cuda:
            torch = _find_with_retries(layout, machine, fabric_seconds)
        torch = torch or _make(layout, choose_index(accelerators, wheel))
    elif torch.made and before is not None:
        torch = torch.replace(index=before.index)
    write_json(layout.note("torch"), to_json(torch))
    return torch


def environment() -> dict[str, str]:
    """Return the environment for probing and checking torch, without variables that mislead it on a rented machine.

    The image's pip configuration is ignored too: with a second index, a newer torch from there would win.
    """
    hidden = (OVERRIDE, "PYTHONPATH", "PYTHONHOME")
    kept = {name: text for name, text in os.environ.items() if name not in hidden and not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def _find(layout: Layout, machine: MachineConfig, *, is_told: bool = True) -> tuple[Torch | None, bool]:
    """Return the first torch that sees a GPU, and whether any torch was built for CUDA."""
    is_for_cuda = False
    for python in _candidates(layout, machine):
        found = probe(python, made=python == str(_made_python(layout)))
        if found is not None and found.archs:
            return found, is_for_cuda
        if found is not None:
            is_for_cuda = is_for_cuda or bool(found.cuda)
            if is_told:
                tell(f"torch {found.torch} of {python} sees no GPU")
    return None, is_for_cuda


def _find_with_retries(layout: Layout, machine: MachineConfig, seconds: float) -> Torch | None:
    """Retry: on p4d and p5 CUDA returns error 802 until the fabric manager is up. fact: fabric-manager-802."""
    tell(f"nvidia-smi shows GPUs that torch doesn't see: is the fabric manager not up yet? Retrying for {seconds:g} s")
    torch = poll_until(lambda: _find(layout, machine, is_told=False)[0], seconds=seconds, every=_AGAIN_SECONDS)
    if torch is None:
        tell(f"after {seconds:g} s torch still sees none of the GPUs that nvidia-smi shows")
    return torch


def _make(layout: Layout, index: str) -> Torch:
    python = make_torch(layout.root / "torch", shutil.which("python3") or sys.executable, index, environment(), tell)
    made = probe(python, made=True)
    if made is None or not made.archs:
        version = made.torch if made else "that can't be imported"
        raise AgentError(f"a torch {version} from {index} sees no GPU here", fix=INSTALL_FIX)
    return made.replace(index=index)


def _candidates(layout: Layout, machine: MachineConfig) -> Iterator[str]:
    """Yield the Pythons to probe; the one made here comes last, because the image may have got a better one since."""
    for folder in machine.path:
        for name in ("python3", "python"):
            if os.access(f"{folder}/{name}", os.X_OK):
                yield f"{folder}/{name}"
                break
    system = shutil.which("python3")
    if system is not None:
        yield system
    if _made_python(layout).exists():
        yield str(_made_python(layout))


def _made_python(layout: Layout) -> Path:
    return layout.root / "torch/bin/python"


def probe(python: str, *, made: bool) -> Torch | None:
    """Ask a Python for its torch; None if it has none that can be imported. Writes no bytecode files."""
    argv = [python, "-IB", str(CHECK), "probe"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_SECONDS, check=True, env=environment()
        )
        return _build({**json.loads(done.stdout.splitlines()[-1]), "python": python, "made": made})
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError, TypeError):
        return None


def _build(content: dict[str, Any]) -> Torch:
    return Torch(
        python=str(content["python"]),
        torch=str(content["torch"]),
        archs=tuple(str(arch) for arch in content["archs"]),
        made=bool(content.get("made")),
        index=str(content.get("index", "")),
        cuda=str(content.get("cuda", "")),
    )


def tell(text: str) -> None:
    """Write a line to the boot log."""
    sys.stderr.write(f"kedge-agent, torch: {text}\n")
