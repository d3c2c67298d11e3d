"""Checks the laptop's disk for room before and while results are fetched, and keeps a reserve for kedge's ledger."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.tree import home_path, is_tree_path
from orchestrator.core.values.units import format_bytes

_KEPT = 64 << 20
"""Bytes that stay free for the ledger and for logs."""


class Listed(Protocol):
    """A result as a machine or a bucket lists it, unverified."""

    @property
    def path(self) -> str:
        """Relative to the results."""

    @property
    def bytes(self) -> int:
        """The size that the list gives."""

    @property
    def link(self) -> str:
        """A link's target; empty for a file."""


def require_room(destination: Path, files: Sequence[Listed]) -> None:
    """Refuse a fetch that wouldn't fit; files that are on the laptop already need no room.

    Raises:
        KedgeError: the disk has less room than the files need.
    """
    there = next(folder for folder in (destination, *destination.parents) if folder.is_dir())
    free = max(shutil.disk_usage(there).free - _KEPT, 0)
    needed = sum(max(file.bytes, 0) for file in files if not file.link)
    # Existing files are only counted if it looks tight: there may be thousands.
    if needed > free:
        needed -= sum(
            min(max(file.bytes, 0), _size(destination / home_path(file.path)))
            for file in files
            if not file.link and is_tree_path(file.path)
        )
    if needed > free:
        raise no_room(there, f"{format_bytes(needed)} are missing, and {format_bytes(free)} are free")


def is_full(folder: Path) -> bool:
    """Tell whether a copy would use up kedge's reserve if it went on."""
    return shutil.disk_usage(folder).free < _KEPT


def no_room(folder: Path, why: str) -> KedgeError:
    """Return the error for a disk without enough room."""
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
