"""Machines whose images have their own Python, and what a command reports about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agent.box import Box
from tests.agent.images import make_image

# A root user without the capability to write everywhere behaves like any other user.
NOT_ROOT = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
SEES = 'python3 -c "import sys, torch, toy; print(sys.prefix, torch.__version__, toy.__version__)"'


def outcome(box: Box, command: str, **config: Any) -> str:
    """Run a command to its end, and return its state."""
    box.start(command, **config)
    return str(box.await_state("succeeded", "failed", timeout=90)["state"])


def lock_of(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def make_gpu_machine(make_machine: Callable[..., Box], tmp_path: Path, **torch: Any) -> Box:
    """Make a machine with two MI300X, whose image has its torch."""
    return make_machine(tmp_path, image=make_image(tmp_path / "opt/pytorch", gpus=2), archs=("gfx942",) * 2, **torch)
