"""Which processes share a disk or a machine, found without the user's help."""

import platform
from collections.abc import Hashable, Sequence
from pathlib import Path

Place = tuple[str, int, int]
"""A file or a folder as one machine sees it: the machine, the file system, the inode."""


def find_place(path: Path) -> Place | None:
    """Return what two processes have in common if they share this path's page cache; None if it doesn't exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _machine(), status.st_dev, status.st_ino


def is_first(rank: int, places: Sequence[Hashable]) -> bool:
    """Whether no process with a smaller rank has the same place. Pure."""
    return places[rank] not in places[:rank]


def _machine() -> str:
    """Return the name of this boot of the machine, which its containers share, as they share the page cache."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
