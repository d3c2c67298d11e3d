"""Lists and copies this checkout's tracked files, as after a clone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def tracked_files() -> list[str]:
    """Return the paths of the existing files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name and (CHECKOUT / name).is_file()]


def copy_tracked(target: Path) -> Path:
    """Copy the files that git tracks, as in a clone."""
    for name in tracked_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, target / name)
    return target
