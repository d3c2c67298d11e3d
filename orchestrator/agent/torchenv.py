"""The Python whose torch drives this machine's GPUs: the one that the image has, else one that is made here.

What the image has is never changed: where its torch doesn't see the GPUs, or is in a container only, a virtual
environment is made at `<root>/torch`, and the command finds it first on its PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .accelerators import find_accelerators
from .errors import AgentError
from .files import read_json, write_json
from .gpuenv import OVERRIDE
from .gpuwait import await_gpus
from .layout import Layout
from .torchmake import INSTALL_FIX, make_torch
from .wheels import choose_index
from .wire import MachineConfig, to_json

CHECK = Path(__file__).with_name("torchcheck.py")
"""The program that such a Python runs to tell what its torch can do."""

NO_TORCH = "none"
"""Instead of a wheel's tag: the job needs no torch, so that none is looked for, and nothing is checked with it."""

IMPORT_SECONDS = 180.0
"""How long importing torch may take: it reads gigabytes, and a snapshot may still be filling the disk.

fact: cold-volume
"""

FABRIC_SECONDS = 120.0
"""How long torch may see none of the GPUs that nvidia-smi shows: CUDA answers 802 until the fabric manager is up."""

_AGAIN_SECONDS = 3.0


@dataclass(frozen=True)
class Torch:
    """A Python's torch.

    Attributes:
        python: the interpreter.
        torch: its version.
        archs: of the GPUs that it sees, such as gfx942 or sm_90.
        made: it is the environment that was made here.
        index: where it was taken from then; empty for the image's own.
        cuda: the version of CUDA that it was built for; empty for ROCm's, and for one for CPUs.
    """

    python: str
    torch: str
    archs: tuple[str, ...] = ()
    made: bool = False
    index: str = ""
    cuda: str = ""

    @property
    def folder(self) -> str:
        """What comes first on the command's PATH."""
        return str(Path(self.python).parent)

    @property
    def key(self) -> str:
        """Compiled kernels are of use to the same architecture and the same torch only."""
        return f"{self.archs[0] if self.archs else 'cpu'}-{self.torch}".replace("+", "-")


def read_torch(layout: Layout) -> Torch | None:
    """Read what `ensure_torch` has found or made; None where nobody has looked."""
    content = read_json(layout.note("torch"))
    return _build(content) if content.get("python") else None


def ensure_torch(
    layout: Layout, machine: MachineConfig, wheel: str = "", *, gpus: int = 1, fabric_seconds: float = FABRIC_SECONDS
) -> Torch | None:
    """Find a torch that sees a GPU, or make one, and write it down; None where the driver itself shows no GPU.

    Args:
        layout: the machine's folder.
        machine: its `path` is where the image's torch was found.
        wheel: the tag or index to take torch from where one has to be made; empty: what suits the machine.
        gpus: how many were ordered: they are waited for, a while.
        fabric_seconds: how long a torch may see none of the GPUs that nvidia-smi shows.

    Raises:
        RequestError: `wheel` is neither a tag nor an index.
        AgentError: torch can't be installed, or doesn't see a GPU even then.
    """
    before = read_torch(layout)
    layout.note("torch").unlink(missing_ok=True)
    await_gpus(gpus)
    torch, is_for_cuda = _find(layout, machine)
    if torch is None:
        accelerators = find_accelerators()
        if not accelerators.archs and not accelerators.cuda:
            # No torch would change that, and one takes minutes to come.
            return None
        if is_for_cuda and accelerators.cuda:
            torch = _find_patiently(layout, machine, fabric_seconds)
        torch = torch or _make(layout, choose_index(accelerators, wheel))
    elif torch.made and before is not None:
        torch = replace(torch, index=before.index)
    write_json(layout.note("torch"), to_json(torch))
    return torch


def environment() -> dict[str, str]:
    """Return the environment in which torch is asked and checked, without what misleads it on a rented machine.

    Nor does an image's configuration of pip say where torch comes from: a second index would win by a newer version.
    """
    hidden = (OVERRIDE, "PYTHONPATH", "PYTHONHOME")
    kept = {name: text for name, text in os.environ.items() if name not in hidden and not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def _find(layout: Layout, machine: MachineConfig, *, is_told: bool = True) -> tuple[Torch | None, bool]:
    """Return the first torch that sees a GPU, and whether there is one that was built for CUDA."""
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


def _find_patiently(layout: Layout, machine: MachineConfig, seconds: float) -> Torch | None:
    """Look again and again: on p4d and p5 CUDA answers 802 until the fabric manager is up. fact: fabric-manager-802."""
    tell(f"nvidia-smi shows GPUs that torch doesn't see: is the fabric manager not up yet? Asking for {seconds:g} s")
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(_AGAIN_SECONDS)
        torch, _ = _find(layout, machine, is_told=False)
        if torch is not None:
            return torch
    tell(f"after {seconds:g} s torch still sees none of the GPUs that nvidia-smi shows")
    return None


def _make(layout: Layout, index: str) -> Torch:
    python = make_torch(layout.root / "torch", shutil.which("python3") or sys.executable, index, environment(), tell)
    made = probe(python, made=True)
    if made is None or not made.archs:
        version = made.torch if made else "that can't be imported"
        raise AgentError(f"a torch {version} from {index} sees no GPU here", fix=INSTALL_FIX)
    return replace(made, index=index)


def _candidates(layout: Layout, machine: MachineConfig) -> Iterator[str]:
    """The one that was made comes last: the image may have been given a better one since."""
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
    """Ask a Python for its torch; None where it has none that can be imported. Nothing is written beside it."""
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
    """Write a line to the boot's log."""
    sys.stderr.write(f"kedge-agent, torch: {text}\n")
