"""Room on the laptop's disk for what comes home, but for what kedge needs to write down how a machine ends."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.core.errors import KedgeError
from orchestrator.core.tree import home_path, is_tree_path
from orchestrator.core.units import format_bytes

_KEPT = 64 << 20
"""Bytes for the ledger and for logs."""


class Listed(Protocol):
    """A result as somebody lists it, whatever is true of it."""

    @property
    def path(self) -> str:
        """Relative to the results."""

    @property
    def bytes(self) -> int:
        """Its size."""

    @property
    def link(self) -> str:
        """What a link holds; empty for a file."""


def require_room(destination: Path, files: Sequence[Listed]) -> None:
    """Refuse to begin what can't end. What is here already needs no room.

    Raises:
        KedgeError: the disk has less room than the files need.
    """
    there = next(folder for folder in (destination, *destination.parents) if folder.is_dir())
    free = max(shutil.disk_usage(there).free - _KEPT, 0)
    needed = sum(max(file.bytes, 0) for file in files if not file.link)
    # Stats only where it looks tight: there may be thousands.
    if needed > free:
        needed -= sum(
            min(max(file.bytes, 0), _size(destination / home_path(file.path)))
            for file in files
            if not file.link and is_tree_path(file.path)
        )
    if needed > free:
        raise no_room(there, f"{format_bytes(needed)} are still to come, and {format_bytes(free)} are free")


def is_full(folder: Path) -> bool:
    """Tell whether a copy that goes on would take what kedge itself needs."""
    return shutil.disk_usage(folder).free < _KEPT


def no_room(folder: Path, why: str) -> KedgeError:
    """Make the error of a disk that is too small."""
    return KedgeError(
        f"there is no room for the results in {folder}",
        why=why,
        fix="make room, or fetch to another disk with `kedge fetch --to FOLDER`",
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
