"""The record of what was fetched to a target in a data volume. It lies beside the target, so that it moves with it.

A volume outlives its machine and comes back with another job. A complete record names the address of the data; one
without an address means that the data is kedge's, but is being replaced or removed. Without a record the data is
somebody else's. The laptop removes fetched data itself before rsync brings other data (adapters/sync/rsync.py).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..base.files import write_json


def record_beside(target: Path) -> Path:
    """Return the record's path."""
    return target.with_name(f".{target.name}.fetched.json")


def remove_fetched(target: Path) -> None:
    """Remove data that was fetched from an address, and its record, because other data comes to its place."""
    record = record_beside(target)
    if record.exists():
        # First, so that what a killed removal leaves doesn't count as the whole data.
        write_json(record, {}, durable=True)
        remove_tree(target)
        record.unlink()


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_occupied(target: Path) -> bool:
    """Whether there is anything but an empty folder."""
    return os.path.lexists(target) and not (target.is_dir() and not target.is_symlink() and not any(target.iterdir()))
