"""A control group for each machine, so that the systemds of several machines don't use each other's groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def make_groups(name: str) -> list[Path]:
    """Make the group `name` in each hierarchy that systemd uses: one with version 2, two on a hybrid host."""
    folders = _folders(name)
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders


def join_groups(folders: Sequence[Path]) -> None:
    """Put the calling process into the groups."""
    for folder in folders:
        (folder / "cgroup.procs").write_text("0")


def remove_groups(name: str, *, timeout: float = 30.0) -> None:
    """Remove the groups and all below; wait up to `timeout` seconds until the last process has left them."""
    deadline = time.monotonic() + timeout
    for folder in _folders(name):
        while not _removed(folder) and time.monotonic() < deadline:
            time.sleep(0.02)


def _folders(name: str) -> list[Path]:
    if (_ROOT / "cgroup.procs").exists():
        return [_ROOT / name]
    return [folder / name for folder in (_ROOT / "systemd", _ROOT / "unified") if folder.is_dir()]


def _removed(folder: Path) -> bool:
    try:
        groups = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for group in [*groups, folder]:
            group.rmdir()
    except FileNotFoundError:
        return not folder.exists()
    except OSError:
        return False
    return True
