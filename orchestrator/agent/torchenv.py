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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .accelerators import find_accelerators
from .errors import AgentError
from .files import read_json, write_json
from .gpuenv import OVERRIDE
from .layout import Layout
from .wheels import choose_index
from .wire import TORCH_WHEEL, MachineConfig, to_json

CHECK = Path(__file__).with_name("torchcheck.py")
"""The program that such a Python runs to tell what its torch can do."""

NO_TORCH = "none"
"""Instead of a wheel's tag: the job needs no torch, so that none is looked for, and nothing is checked with it."""

# The first import reads gigabytes of libraries from a disk that a snapshot may still be filling.
_PROBE_SECONDS = 180.0
# ROCm's wheel and what it needs are about 5 GB.
_INSTALL_SECONDS = 1500.0
_LIST_SECONDS = 20.0
_CONTAINERS = ("docker", "podman")


@dataclass(frozen=True)
class Torch:
    """A Python's torch.

    Attributes:
        python: the interpreter.
        torch: its version.
        archs: of the GPUs that it sees, such as gfx942 or sm_90.
        made: it is the environment that was made here.
    """

    python: str
    torch: str
    archs: tuple[str, ...] = ()
    made: bool = False

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


def ensure_torch(layout: Layout, machine: MachineConfig, wheel: str = "") -> Torch | None:
    """Find a torch that sees a GPU, or make one, and write it down; None where the driver itself shows no GPU.

    Args:
        layout: the machine's folder.
        machine: its `path` is where the image's torch was found.
        wheel: the tag or index to take torch from where one has to be made; empty: what suits the machine.

    Raises:
        RequestError: `wheel` is neither a tag nor an index.
        AgentError: torch can't be installed, or doesn't see a GPU even then.
    """
    layout.note("torch").unlink(missing_ok=True)
    torch = _find(layout, machine)
    if torch is None:
        accelerators = find_accelerators()
        if not accelerators.archs and not accelerators.cuda:
            # No torch would change that, and one takes minutes to come.
            return None
        torch = _make(layout, choose_index(accelerators, wheel))
    write_json(layout.note("torch"), to_json(torch))
    return torch


def environment() -> dict[str, str]:
    """Return the environment in which torch is asked and checked, without what misleads it on a rented machine.

    Nor does an image's configuration of pip say where torch comes from: a second index would win by a newer version.
    """
    hidden = (OVERRIDE, "PYTHONPATH", "PYTHONHOME")
    kept = {name: text for name, text in os.environ.items() if name not in hidden and not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def _find(layout: Layout, machine: MachineConfig) -> Torch | None:
    for python in _candidates(layout, machine):
        found = _probe(python, made=python == str(_made_python(layout)))
        if found is not None and found.archs:
            return found
        if found is not None:
            _tell(f"torch {found.torch} of {python} sees no GPU: it is left alone")
    return None


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


def _probe(python: str, *, made: bool) -> Torch | None:
    """Ask a Python for its torch; None where it has none that can be imported. Nothing is written beside it."""
    argv = [python, "-IB", str(CHECK), "probe"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_SECONDS, check=True, env=environment()
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
    )


def _make(layout: Layout, index: str) -> Torch:
    for image in _list_images():
        _tell(f"the container image {image} may hold a torch, but commands run on the machine itself")
    _tell(f"no torch here sees a GPU: making an environment with the one from {index}")
    python = str(_made_python(layout))
    _make_venv(layout)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    _run([*pip, "--index-url", index, "torch"], "torch can't be installed", _INSTALL_FIX)
    made = _probe(python, made=True)
    if made is None or not made.archs:
        version = made.torch if made else "that can't be imported"
        raise AgentError(f"a torch {version} from {index} sees no GPU here", fix=_INSTALL_FIX)
    return made


_INSTALL_FIX = f"choose another with {TORCH_WHEEL} in the job's envs, such as rocm6.4, or an image that has torch"


def _make_venv(layout: Layout) -> None:
    """Make it with Debian's help where its Python comes without `ensurepip`."""
    venv = [shutil.which("python3") or sys.executable, "-m", "venv", "--clear", str(layout.root / "torch")]
    failure = "no virtual environment can be made"
    try:
        _run(venv, failure)
    except AgentError:
        if shutil.which("apt-get") is None:
            raise
        _tell("installing python3-venv")
        apt = ["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
        _run([*apt, "update"], failure)
        _run([*apt, "install", "-y", "python3-venv"], failure)
        _run(venv, failure)


def _list_images() -> list[str]:
    """List the container images that look as if they held a torch."""
    images = []
    for program in _CONTAINERS:
        argv = [program, "images", "--format", "{{.Repository}}:{{.Tag}}"]
        try:
            listed = subprocess.run(argv, capture_output=True, timeout=_LIST_SECONDS, check=True, text=True)
        except (OSError, subprocess.SubprocessError):
            continue
        images += [line for line in listed.stdout.splitlines() if "torch" in line or "rocm" in line]
    return images


def _run(argv: Sequence[str], failure: str, fix: str = "") -> None:
    try:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_INSTALL_SECONDS,
            check=True,
            env=environment(),
        )
    except subprocess.CalledProcessError as err:
        said = (err.stdout or b"").decode(errors="replace").strip().splitlines()
        raise AgentError(
            failure, why="; ".join(said[-3:]) or f"{argv[0]} exited with {err.returncode}", fix=fix
        ) from err
    except (OSError, subprocess.SubprocessError) as err:
        raise AgentError(failure, why=str(err), fix=fix) from err


def _tell(text: str) -> None:
    sys.stderr.write(f"kedge-agent, torch: {text}\n")
