"""This checkout, as somebody else has it after a clone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def copy_tracked(target: Path) -> Path:
    """Copy what git tracks, as a clone has it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (CHECKOUT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, target / name)
    return target
