"""Installs a torch for this machine's GPUs, in a virtual environment of its own at `<root>/torch`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from ..base.errors import AgentError
from ..base.wire import TORCH_WHEEL
from .installers import call, ensure_pip
from .virtualenv import ask_python, make_virtual_environment

INSTALL_FIX = f"choose another with {TORCH_WHEEL} in the job's envs, such as rocm6.4, or an image that has torch"

# ROCm's wheel and its dependencies are about 5 GB.
_INSTALL_SECONDS = 1500.0
_LIST_SECONDS = 20.0
_CONTAINERS = ("docker", "podman")
# pip's messages if an index doesn't have all packages, or not for one version of torch.
_NOT_TOGETHER = ("No matching distribution", "ResolutionImpossible", "conflicting dependencies")


def make_torch(folder: Path, system: str, index: str, env: Mapping[str, str], tell: Callable[[str], None]) -> str:
    """Install torch from an index, with the torchvision and the torchaudio that were built for it; return its Python.

    Args:
        folder: the environment's folder; an existing one is replaced.
        system: the base Python.
        index: the one index for all of them, because its packages are built for one version of CUDA or ROCm.
        env: pip's environment.
        tell: writes a line to the boot log.

    Raises:
        AgentError: torch can't be installed.
    """
    from .facts import TORCHES  # noqa: PLC0415 - it imports importlib.metadata

    for image in _list_images():
        tell(f"the container image {image} may hold a torch, but commands run on the machine itself")
    tell(f"no torch here sees a GPU: making an environment with the one from {index}")
    base = ask_python(system, env)
    make_virtual_environment(folder, base)
    python = folder / "bin/python"
    if not base.has_pip:
        ensure_pip(python, env)
    # The system's packages are not visible, because its torch is the one that sees no GPU.
    options = ["--disable-pip-version-check", "--no-input", "install", "--ignore-installed", "--index-url", index]
    pip = [str(python), "-m", "pip", *options]
    failure = "torch can't be installed"
    try:
        call([*pip, *TORCHES], failure, env, fix=INSTALL_FIX, timeout=_INSTALL_SECONDS)
    except AgentError as err:
        if not any(sign in err.why for sign in _NOT_TOGETHER):
            raise
        tell(f"{index} has no {' and '.join(TORCHES[1:])} for its torch: installing only torch")
        call([*pip, TORCHES[0]], failure, env, fix=INSTALL_FIX, timeout=_INSTALL_SECONDS)
    return str(python)


def _list_images() -> list[str]:
    """List the container images that seem to have torch."""
    images = []
    for program in _CONTAINERS:
        argv = [program, "images", "--format", "{{.Repository}}:{{.Tag}}"]
        try:
            listed = subprocess.run(argv, capture_output=True, timeout=_LIST_SECONDS, check=True, text=True)
        except (OSError, subprocess.SubprocessError):
            continue
        images += [line for line in listed.stdout.splitlines() if "torch" in line or "rocm" in line]
    return images
